"""The gates of all topics of one consumer: which are closed, and the information they lack.

`gate.TopicGate` evaluates the gates of one topic. This module holds those of all topics, built from the newest
metadata, and the key epochs found closed. A call of `passes` records what is missing for the answer: key epoch ends
from leaders (`requested_ends`), offsets for the group to commit (`awaited_offsets`), newer metadata (`outdated`).
`GateWatcher` queries those and notes the results here.

Invariant: a gate exists only for a topic that is read in order, and keeps nothing of an earlier topic of the same name.
Pure.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.clients.consumer.gate import PartitionView, TopicGate
from anabranch.clients.durations import Durations
from anabranch.clients.metadata import ClusterMetadata
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.order_gates import UNKNOWN, Wait
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

OPENINGS_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class GateView:
    """A closed gate, for display."""

    topic: str
    key_epoch: KeyEpoch
    waits: tuple[Wait, ...]
    closed_since_s: float
    """Loop time at which it was first found closed."""

    def __str__(self) -> str:
        reasons = "; ".join(str(wait) for wait in self.waits)
        return f"{self.topic}-{self.key_epoch} waits for {reasons}"


@dataclass(frozen=True, slots=True)
class GateOpening:
    """A gate that was closed and has opened; loop times."""

    topic: str
    key_epoch: KeyEpoch
    closed_at_s: float
    opened_at_s: float


class Gates:
    """The gates of all topics that a consumer reads. Without `ordered` there are none, and every key epoch passes."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._gates: dict[str, TopicGate] = {}
        self._topic_ids: dict[str, bytes] = {}
        self.closed: dict[tuple[str, KeyEpoch], float] = {}
        """Key epochs found closed, and since when (loop time, s)."""
        self.requested_ends: set[tuple[str, KeyEpoch]] = set()
        """Key epochs whose ends leaders have to report."""
        self.outdated = False
        """Whether a batch is newer than the metadata, which must be refreshed."""
        self.asks = False
        """Whether new information is needed; `GateWatcher` clears it."""
        self.openings: deque[GateOpening] = deque(maxlen=OPENINGS_KEPT)
        """Recently opened gates, oldest first."""
        self.handoffs = Durations()
        """How many gates have opened, and for how long they were closed."""

    def __bool__(self) -> bool:
        return bool(self._gates)

    def gate(self, topic: str) -> TopicGate | None:
        """Return the gate of a topic; None where Kafka's own rules apply."""
        return self._gates.get(topic)

    def views(self) -> list[GateView]:
        """Return every closed gate with its reasons."""
        return [
            GateView(topic, key_epoch, tuple(self._gates[topic].waits(key_epoch)), since)
            for (topic, key_epoch), since in sorted(self.closed.items())
            if topic in self._gates
        ]

    def passes(self, topic: str, key_epoch: KeyEpoch, now_s: float) -> bool:
        """Whether a key epoch is open; a closed one is watched from now on (loop time) until it opens."""
        gate = self._gates[topic]
        if gate.is_open(key_epoch):
            closed_at = self.closed.pop((topic, key_epoch), None)
            if closed_at is not None:
                self.openings.append(GateOpening(topic, key_epoch, closed_at, now_s))
                self.handoffs.record(now_s - closed_at)
                log.info("%s-%s opened after %.3f s", topic, key_epoch, now_s - closed_at)
            return True
        if (topic, key_epoch) not in self.closed:
            self.closed[topic, key_epoch] = now_s
            self.asks = True
            log.info("%s-%s waits for %s", topic, key_epoch, "; ".join(map(str, gate.waits(key_epoch))))
        for wait in gate.waits(key_epoch):
            if wait.end == UNKNOWN:
                self.want_end(topic, wait.key_epoch)
        return False

    def want_end(self, topic: str, key_epoch: KeyEpoch) -> None:
        """Request the end of a key epoch."""
        if (topic, key_epoch) not in self.requested_ends:
            self.requested_ends.add((topic, key_epoch))
            self.asks = True

    def drop_end(self, topic: str, key_epoch: KeyEpoch) -> None:
        """Drop a removed partition's request: it has no end. A gate that still needs it requests it again."""
        self.requested_ends.discard((topic, key_epoch))

    def note_end(self, topic: str, key_epoch: KeyEpoch, end_offset: int, *, leader_epoch: int) -> bool:
        """Note a key epoch's end from a leader of `leader_epoch`; return False if it is no longer wanted."""
        if (topic, key_epoch) not in self.requested_ends or topic not in self._gates:
            return False
        self._gates[topic].note_end(key_epoch, end_offset, leader_epoch=leader_epoch)
        self.requested_ends.discard((topic, key_epoch))
        return True

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note the group's committed offsets: those of others and of this consumer."""
        for partition, offset in offsets.items():
            gate = self._gates.get(partition.topic)
            if gate is not None:
                gate.note_committed(partition.partition, offset)

    def awaited_offsets(self) -> dict[TopicPartition, int]:
        """Return the offsets that closed gates wait for the group to commit, as far as they are known."""
        awaited: dict[TopicPartition, int] = {}
        for topic, key_epoch in self.closed:
            for wait in self._gates[topic].waits(key_epoch):
                if wait.end != UNKNOWN:
                    partition = TopicPartition(topic, wait.key_epoch.partition)
                    awaited[partition] = min(wait.end, awaited.get(partition, wait.end))
        return awaited

    def forget(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Forget gates that other members watch now, or that a seek made obsolete; None: all of them."""
        if partitions is not None:
            self._drop(set(partitions))
            return
        self.closed.clear()
        self.requested_ends.clear()

    def refresh(self, metadata: ClusterMetadata) -> None:
        """Adopt newer metadata."""
        for name, topic in metadata.topics.items():
            gated = topic.lineage is not None and topic.gated
            if self._topic_ids.get(name, topic.topic_id) != topic.topic_id or not gated:
                # A recreated topic, or one to be read without order: discard its state.
                self._gates.pop(name, None)
                self._drop(self._partitions_watched(name))
            self._topic_ids[name] = topic.topic_id
            if topic.lineage is None or not topic.gated or not self._ordered:
                continue
            views = {index: PartitionView(one.leader_epoch, one.gen_start) for index, one in topic.partitions.items()}
            known = self._gates.get(name)
            if known is None:
                self._gates[name] = TopicGate(topic.lineage, views)
            else:
                known.refresh(topic.lineage, views)

    def _partitions_watched(self, topic: str) -> set[TopicPartition]:
        watched = self.closed.keys() | self.requested_ends
        return {TopicPartition(name, key_epoch.partition) for name, key_epoch in watched if name == topic}

    def _drop(self, partitions: set[TopicPartition]) -> None:
        for one in [one for one in self.closed if (one[0], one[1].partition) in partitions]:
            del self.closed[one]
        self.requested_ends -= {one for one in self.requested_ends if (one[0], one[1].partition) in partitions}
