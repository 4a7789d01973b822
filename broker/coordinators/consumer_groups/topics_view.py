"""The interface through which group decisions read the cluster's topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from anabranch.broker.coordinators.consumer_groups.subscribed_topics import Topic


class TopicsView(Protocol):
    """The topics at one time."""

    @property
    def image(self) -> Any:
        """The metadata image; another object whenever anything may have changed."""

    @property
    def newest_topic(self) -> int:
        """A number that grows when topics are created: a resolved expression may then match more."""

    def find(self, name: str) -> Topic | None:
        """Return a topic by name, if it exists."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic id, if the topic exists."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""


class NoTopics:
    """A view of a cluster without topics."""

    image = None
    newest_topic = 0

    def find(self, name: str) -> Topic | None:
        """Return None."""
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return None."""
        return None

    def names(self) -> Iterable[str]:
        """Return no names."""
        return ()


NO_TOPICS: Final = NoTopics()
