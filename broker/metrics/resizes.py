"""Counts the resizes that a node's controller announces: planned, published, and how long one has been under way.

A plan is known to its topic's znode, but not when it was made: a controller that takes over counts its age from then.
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
    """Counts what a controller announces, over all its terms."""

    def __init__(self, now_s: float) -> None:
        """`now_s`: a controller that is in office already is taken to have taken over at this moment."""
        self.planned = 0
        self.published = 0
        self._elected_s = now_s
        self._planned_s: dict[str, float] = {}

    def on_event(self, event: ControllerEvent) -> None:
        """Note an event that the controller announces."""
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
        """How old the plan of each of these topics is, as far as this controller knows."""
        for topic in topics:
            yield topic, now_s - self._planned_s.get(topic, self._elected_s)
