"""Counts the resizes that a node's controller has planned and published, and measures the age of unfinished ones.

A plan in a topic's znode has no time: after a controller failover its age counts from the election.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.controller.runner import ControllerEvent

PLANNED: Final = "resize planned"
PUBLISHED: Final = "resize published"
ELECTED: Final = "elected"


class Resizes:
    """Counts resizes from the events of a controller, over all its tenures."""

    def __init__(self, now_s: float) -> None:
        """`now_s`: the assumed election time of a controller that is already active."""
        self.planned = 0
        self.published = 0
        self._elected_s = now_s
        self._planned_s: dict[str, float] = {}

    def on_event(self, event: ControllerEvent) -> None:
        """Record an event of the controller."""
        if event.kind == ELECTED:
            self._elected_s = event.at_s
            self._planned_s.clear()
        elif event.kind == PLANNED:
            self.planned += 1
            self._planned_s[event.detail["topic"]] = event.at_s
        elif event.kind == PUBLISHED:
            self.published += 1
            self._planned_s.pop(event.detail["topic"], None)

    def ages_s(self, topics: Iterable[str], now_s: float) -> Iterator[tuple[str, float]]:
        """Yield the age of each topic's plan, since its planning or the controller's election."""
        for topic in topics:
            yield topic, now_s - self._planned_s.get(topic, self._elected_s)
