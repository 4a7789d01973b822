"""The numbered events of a cluster, for later queries and for listeners.

Events report decisions and observations of controllers (elections, brokers that come and go, the steps of resizes),
metadata changes (leaders, ISRs), actions of the control plane, and hits of fault rules. Their numbers only grow, so a
client that lost its connection continues from the last number. The newest `KEPT` are kept.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, TypedDict, cast

from anabranch.faults.trigger import Trigger

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, PartitionImage
    from anabranch.broker.node.app import Node
    from anabranch.controller.runner import ControllerEvent
    from anabranch.faults.active_rule import ActiveRule, Hit

KEPT: Final = 10_000
HITS_REPORTED: Final = 100
"""Per rule: a rule that hits every request must not displace the other events."""


class EventRow(TypedDict):
    """An event. Its kind decides the other fields; there are more than these."""

    number: int
    at: Annotated[float, "the time of the cluster's event loop, in seconds"]
    kind: Annotated[str, "such as leader, isr, elected, node killed, resize published, fault"]
    node: NotRequired[int]
    controller: NotRequired[Annotated[int, "the controller that decided it"]]
    epoch: NotRequired[Annotated[int, "the controller's epoch"]]
    topic: NotRequired[str]
    partition: NotRequired[int]
    leader: NotRequired[Annotated[int, "the leader's node id; -1 without a leader"]]
    leader_epoch: NotRequired[int]
    partition_epoch: NotRequired[Annotated[int, "the version of the partition's state"]]
    topic_id: NotRequired[Annotated[str, "the id of the topic, as Kafka writes it"]]
    isr: NotRequired[Annotated[list[int], "the in-sync replicas"]]
    generation: NotRequired[int]
    group: NotRequired[str]
    rule: NotRequired[Annotated[str, "the fault rule that hit"]]


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    number: int
    at_s: float
    """The time on the event loop's clock, in seconds."""
    kind: str
    detail: Mapping[str, Any]

    def row(self) -> EventRow:
        """The event as a JSON row."""
        said = {"number": self.number, "at": round(self.at_s, 6), "kind": self.kind, **self.detail}
        return cast("EventRow", said)


class Events:
    """The events of one cluster."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._number = 0
        self._changed: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[Event], None]] = []
        self._flushes: dict[Callable[[], None], None] = {}
        self._leaders: dict[tuple[bytes, int], int] = {}
        self._isrs: dict[tuple[bytes, int], tuple[int, int]] = {}

    @property
    def newest(self) -> int:
        """The number of the newest event; 0 if there is none."""
        return self._number

    def publish(self, kind: str, **detail: Any) -> None:
        """Record an event, and notify the listeners."""
        self.publish_at(self._loop.time(), kind, detail)

    def publish_at(self, at_s: float, kind: str, detail: Mapping[str, Any]) -> None:
        """Record an event of this time, and notify the listeners."""
        self._number += 1
        event = Event(self._number, at_s, kind, detail)
        self._kept.append(event)
        for listener in self._listeners:
            listener(event)
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def on_event(self, listener: Callable[[Event], None]) -> None:
        """Call `listener(event)` for each later event."""
        self._listeners.append(listener)

    def watch(self, node: Node) -> None:
        """Record the events of a node from now on."""
        node.on_controller_event(self._on_controller)
        node.services.metadata.on_change(self._on_metadata)

    def on_hit(self, armed: ActiveRule, node_id: int, what: Hit) -> None:
        """Record a rule's hit."""
        if armed.hits > HITS_REPORTED:
            return
        if isinstance(what, Trigger):
            hit: dict[str, Any] = {what.kind: what.detail}
        else:
            request = what.request
            hit = {"api": request.api.name, "version": request.version, "client": request.client_id}
        self.publish("fault", rule=armed.rule.name, node=node_id, hits=armed.hits, **hit)

    def after(self, number: int) -> list[Event]:
        """The kept events after a number."""
        newer = list(takewhile(lambda one: one.number > number, reversed(self._kept)))
        newer.reverse()
        return newer

    async def wait_after(self, number: int) -> None:
        """Wait until there is an event after a number."""
        while number >= self._number:
            if self._changed is None:
                self._changed = self._loop.create_future()
            await asyncio.shield(self._changed)

    @contextlib.contextmanager
    def flushed_by(self, flush: Callable[[], None]) -> Iterator[None]:
        """A block during which `flush` sends unsent events when the process is about to end."""
        self._flushes[flush] = None
        try:
            yield
        finally:
            del self._flushes[flush]

    def flush(self) -> None:
        """Send all unsent events at once, without waiting for their streams: the process is about to end."""
        for flush in list(self._flushes):
            flush()

    def forget(self) -> None:
        """Forget known epochs: the cluster was reset, and epochs may repeat. Events are kept."""
        self._leaders.clear()
        self._isrs.clear()

    def _on_controller(self, event: ControllerEvent) -> None:
        by = {"controller": event.controller_id, "epoch": event.controller_epoch}
        self.publish(event.kind, **{**by, **event.detail})

    def _on_metadata(self, before: ClusterImage, after: ClusterImage) -> None:
        """Every broker applies every change; the first one that does causes the event."""
        for name, topic in after.topics.items():
            known = before.topics.get(name)
            if known is topic:
                continue
            for index, partition in topic.partitions.items():
                self._on_partition(name, topic.topic_id, index, partition)

    def _on_partition(self, topic: str, topic_id: bytes, index: int, partition: PartitionImage) -> None:
        """The epochs of a topic that was deleted and created again start again."""
        place, epoch = (topic_id, index), partition.leader_epoch
        version = (epoch, partition.partition_epoch)
        is_led, is_changed = self._leaders.get(place, -1) < epoch, self._isrs.get(place, (-1, -1)) < version
        if not is_led and not is_changed:
            return
        named = {"topic": topic, "partition": index}
        epochs = {"leader_epoch": epoch, "topic_id": base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()}
        if is_led:
            self._leaders[place] = epoch
            self.publish("leader", **named, leader=partition.leader, **epochs)
        if is_changed:
            self._isrs[place] = version
            self.publish("isr", **named, isr=list(partition.isr), partition_epoch=version[1], **epochs)
