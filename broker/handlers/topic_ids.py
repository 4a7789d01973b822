"""Topics that a request names by their ids: found once, before anything else is done with them.

The newest versions of Produce, OffsetCommit and OffsetFetch have ids in place of names, in the request and in the
answer. A handler works with names: `name_them` sets them and takes out what is not known, `identify` sets the ids of
the rows of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage


class Topic(Protocol):
    """A topic of a request, or its row in an answer."""

    name: str
    topic_id: bytes


Asked = TypeVar("Asked", bound=Topic)


def name_them(image: ClusterImage, topics: Sequence[Asked]) -> tuple[list[Asked], list[Asked]]:
    """The topics that are known, with their names, and those that are not."""
    known, unknown = [], []
    for topic in topics:
        name = image.names.get(topic.topic_id)
        if name is None:
            unknown.append(topic)
        else:
            topic.name = name
            known.append(topic)
    return known, unknown


def identify(rows: Iterable[Topic], asked: Iterable[Topic]) -> None:
    """Set the ids of the rows, as they were asked for."""
    ids = {topic.name: topic.topic_id for topic in asked}
    for row in rows:
        row.topic_id = ids.get(row.name, row.topic_id)
