"""The cluster's topics, as the decisions about a group ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from anabranch.broker.coordinators.consumer_groups.subscribed_topics import Topic


class TopicsView(Protocol):
    """What is known of topics at one moment."""

    @property
    def image(self) -> Any:
        """Another object whenever anything may be different."""

    @property
    def newest_topic(self) -> int:
        """Grows whenever a topic is made: a resolved expression may match more then."""

    def find(self, name: str) -> Topic | None:
        """A topic by its name, if it exists."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The name behind a topic id, if it exists."""

    def names(self) -> Iterable[str]:
        """The names of all topics."""


class NoTopics:
    """A cluster without topics."""

    image = None
    newest_topic = 0

    def find(self, name: str) -> Topic | None:
        """None."""
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        """None."""
        return None

    def names(self) -> Iterable[str]:
        """None."""
        return ()


NO_TOPICS: Final = NoTopics()
