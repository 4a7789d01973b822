"""Resolves the topic ids of a request to names, before anything else is done with them.

The newest versions of Produce, OffsetCommit and OffsetFetch have ids in place of names, in request and response.
Handlers use names: `name_them` sets them and separates unknown topics, `identify` sets the ids in the response.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage


class Topic(Protocol):
    """A topic of a request, or its row in a response."""

    name: str
    topic_id: bytes


Requested = TypeVar("Requested", bound=Topic)


def name_them(image: ClusterImage, topics: Sequence[Requested]) -> tuple[list[Requested], list[Requested]]:
    """Return the known topics, with their names, and the unknown ones."""
    known, unknown = [], []
    for topic in topics:
        name = image.names.get(topic.topic_id)
        if name is None:
            unknown.append(topic)
        else:
            topic.name = name
            known.append(topic)
    return known, unknown


def identify(rows: Iterable[Topic], requested: Iterable[Topic]) -> None:
    """Set the ids of the rows to those of the request."""
    ids = {topic.name: topic.topic_id for topic in requested}
    for row in rows:
        row.topic_id = ids.get(row.name, row.topic_id)
