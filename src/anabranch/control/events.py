"""What has happened in a cluster, numbered, for those who ask later and for those who listen.

Told are what controllers decide and see (elections, brokers that come and go, the steps of resizes), what metadata
shows (leaders, ISRs), what was done from outside, and what rules of faults have hit. Each has a number that only grows,
so that who was cut off goes on where it was. The newest `KEPT` are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.faults.trigger import Trigger

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, PartitionImage
    from anabranch.broker.node.app import Node
    from anabranch.controller.runner import ControllerEvent
    from anabranch.faults.active_rule import ActiveRule, Hit

KEPT: Final = 10_000
HITS_REPORTED: Final = 100
"""Of each rule: one that hits everything must not push out the other events."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    number: int
    at_s: float
    """On the clock of the event loop, from its own zero."""
    kind: str
    detail: Mapping[str, Any]

    def row(self) -> dict[str, Any]:
        """For a program."""
        return {"number": self.number, "at": round(self.at_s, 6), "kind": self.kind, **self.detail}


class Events:
    """The events of one cluster."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._number = 0
        self._news: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[Event], None]] = []
        self._leaders: dict[tuple[bytes, int], int] = {}
        self._isrs: dict[tuple[bytes, int], tuple[int, int]] = {}

    @property
    def newest(self) -> int:
        """The number of the newest event; 0 if there was none yet."""
        return self._number

    def publish(self, kind: str, **detail: Any) -> None:
        """Something happened."""
        self._number += 1
        event = Event(self._number, self._loop.time(), kind, detail)
        self._kept.append(event)
        for listener in self._listeners:
            listener(event)
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    def on_event(self, listener: Callable[[Event], None]) -> None:
        """Call `listener(event)` for each event from now on."""
        self._listeners.append(listener)

    def watch(self, node: Node) -> None:
        """Take up what a node tells from now on."""
        node.on_controller_event(self._on_controller)
        node.services.metadata.on_change(self._on_metadata)

    def on_hit(self, armed: ActiveRule, node_id: int, what: Hit) -> None:
        """A rule has hit something."""
        if armed.hits > HITS_REPORTED:
            return
        if isinstance(what, Trigger):
            hit: dict[str, Any] = {what.kind: what.detail}
        else:
            request = what.request
            hit = {"api": request.api.name, "version": request.version, "client": request.client_id}
        self.publish("fault", rule=armed.rule.name, node=node_id, hits=armed.hits, **hit)

    def after(self, number: int) -> list[Event]:
        """What came after an event, as far as it is kept."""
        return [one for one in self._kept if one.number > number]

    async def follow(self, number: int) -> AsyncIterator[Event]:
        """What came after an event, and what comes, without an end."""
        while True:
            for one in self.after(number):
                number = one.number
                yield one
            if number >= self._number:
                if self._news is None:
                    self._news = self._loop.create_future()
                await asyncio.shield(self._news)

    def forget(self) -> None:
        """The cluster begins anew, with epochs that may have been there; what has happened is kept."""
        self._leaders.clear()
        self._isrs.clear()

    def _on_controller(self, event: ControllerEvent) -> None:
        by = {"controller": event.controller_id, "epoch": event.controller_epoch}
        self.publish(event.kind, **{**by, **event.detail})

    def _on_metadata(self, before: ClusterImage, after: ClusterImage) -> None:
        """Every broker hears of every change; the first to hear of it tells."""
        for name, topic in after.topics.items():
            known = before.topics.get(name)
            if known is topic:
                continue
            for index, partition in topic.partitions.items():
                self._on_partition(name, topic.topic_id, index, partition)

    def _on_partition(self, topic: str, topic_id: bytes, index: int, partition: PartitionImage) -> None:
        """Of a topic that was deleted and made anew the epochs begin anew."""
        place, epoch = (topic_id, index), partition.leader_epoch
        if self._leaders.get(place, -1) < epoch:
            self._leaders[place] = epoch
            self.publish("leader", topic=topic, partition=index, leader=partition.leader, leader_epoch=epoch)
        version = (epoch, partition.partition_epoch)
        if self._isrs.get(place, (-1, -1)) < version:
            self._isrs[place] = version
            self.publish("isr", topic=topic, partition=index, isr=list(partition.isr))
