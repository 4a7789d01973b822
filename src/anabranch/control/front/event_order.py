"""Merges the events of several nodes into one order. Pure.

Certain is the order of the events of one node, of the events of controllers by controller epoch, and of the leaders and
ISRs of one partition by leader epoch and partition epoch. All other events are ordered by the clocks of the nodes:
processes of one machine share a clock, so that order is exact there, and between machines it is as exact as their
clocks. If two of these rules contradict each other, the order of each node's own events stays.

Every node reports every leader and every ISR; the first report is kept. An event waits until the moment that `take`
gets, because an older one of another node may still arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

CONTROLLER: Final = ("controller",)
VERSIONED: Final = ("leader", "isr")
"""The kinds of events that every node reports."""

Place = tuple[Any, ...]
Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event of one node."""

    source: int
    """The node that reported it."""
    at_s: float
    """The time, on the clock of the front."""
    kind: str
    detail: Mapping[str, Any]

    @property
    def epoch(self) -> tuple[Place, Version] | None:
        """What the event is about, and its epochs, by which it is compared; None for events without an epoch."""
        detail = self.detail
        if self.kind in VERSIONED:
            place = detail.get("topic_id", detail["topic"]), detail["partition"]
            return place, (detail.get("leader_epoch", -1), detail.get("partition_epoch", -1))
        if "controller" in detail and "epoch" in detail:
            return CONTROLLER, (detail["epoch"], -1)
        return None


class EventOrder:
    """Takes events in the order of their arrival, and returns them in one order."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[NodeEvent]] = {}
        self._pending: dict[Place, list[tuple[Version, int]]] = {}
        """Place -> the epochs of its waiting events, each with its source."""
        self._newest: dict[tuple[str, Place], Version] = {}

    def add(self, event: NodeEvent) -> None:
        """Add the next event of a node."""
        self._queues.setdefault(event.source, deque()).append(event)
        if (found := event.epoch) is not None:
            self._pending.setdefault(found[0], []).append((found[1], event.source))

    @property
    def oldest_s(self) -> float | None:
        """The time of the oldest event that waits; None without one."""
        return min((one[0].at_s for one in self._queues.values() if one), default=None)

    def take(self, until_s: float) -> Iterator[NodeEvent]:
        """Remove and return the events up to a time, in order, without repeated leaders and ISRs."""
        while (chosen := self._next(until_s)) is not None:
            event = self._queues[chosen].popleft()
            if (found := event.epoch) is not None:
                place, version = found
                left = self._pending[place]
                left.remove((version, chosen))
                if not left:
                    del self._pending[place]
                if self._is_repeated(event.kind, place, version):
                    continue
            yield event

    def _is_repeated(self, kind: str, place: Place, version: Version) -> bool:
        if kind not in VERSIONED:
            return False
        if version <= self._newest.get((kind, place), (-1, -1)):
            return True
        self._newest[kind, place] = version
        return False

    def _next(self, until_s: float) -> int | None:
        """The source of the next event; None if all are later."""
        heads = {source: queue[0] for source, queue in self._queues.items() if queue}
        due = [source for source, head in heads.items() if head.at_s <= until_s]
        if not due:
            return None
        eligible, free = list(due), list[int]()
        for source in eligible:  # grows: the events that must come before it, too
            if before := self._sources_before(heads[source]):
                eligible += [one for one in before if one not in eligible]
            else:
                free.append(source)
        return min(free or due, key=lambda one: (heads[one].at_s, one))

    def _sources_before(self, event: NodeEvent) -> list[int]:
        """The other nodes that have a waiting event of a lower epoch about the same thing."""
        if (found := event.epoch) is None:
            return []
        place, version = found
        return [source for other, source in self._pending[place] if other < version and source != event.source]
