"""Decides which records may be delivered next, and what must come first: the consumer's side of R9-R11 and K618.

A partition's log is a sequence of key epochs. The owner stops between two of them: when everything below a boundary was
delivered *and the application asked for more*, its keys may move. So the application flushes
(`on_partition_key_maybe_revoked`), the position is committed, and only then is the boundary crossed. A key epoch that
waits for other partitions is announced (`on_partition_key_assigned`) once its gate is open and before its first record.

`Deliveries` decides from progress and gates; it calls the application's `holds_back` and `read_together` only. `core`
takes the steps that must come first, and asks again. Pure.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from anabranch.clients.consumer.assignment import Assignment
from anabranch.clients.consumer.consumer_record import NO_GENERATION, ConsumerRecord
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.consumer.progress import UNKNOWN, FetchedBatch, PartitionProgress
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.order_gates import Wait
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

AWAITED_LOG_S: Final = 10.0
"""After this time a partition for which the records of others wait is logged."""


class Boundary(NamedTuple):
    """A key epoch that was read to its end."""

    progress: PartitionProgress
    key_epoch: KeyEpoch
    handed_over: bool
    """Whether keys moved to other partitions there: only then is a flush needed."""
    end: int
    begin_number: int
    """The begin number (`PartitionProgress.begin_number`) under which this was found."""
    maybe: bool = False
    """The key epoch's end is unknown: this position may be it."""


_Next = tuple[int, int, int, FetchedBatch]
"""The next record of a partition that is read together with others: its timestamp, the place of the partition among
them, and the generation and the batch of the record.
"""


def alone(partition: TopicPartition) -> Sequence[TopicPartition]:
    """Read a partition together with no others."""
    return ()


class Deliveries:
    """Delivers records of the assigned partitions in turn, as far as the gates allow."""

    def __init__(
        self,
        assignment: Assignment,
        gates: Gates,
        *,
        in_group: bool,
        holds_back: Callable[[TopicPartition, int], bool],
        read_together: Callable[[TopicPartition], Sequence[TopicPartition]] = alone,
    ) -> None:
        self._assignment = assignment
        self._gates = gates
        self._in_group = in_group
        self._holds_back = holds_back
        self._read_together = read_together
        self._awaited_since_s: dict[TopicPartition, float] = {}
        """Since when records wait for a partition that they are read together with; infinity: it was logged."""

    def take(self, limit: int, now_s: float) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `limit` deliverable records. Raises KafkaError if the first of them is damaged.

        Of partitions that are read together, they are the oldest ones: `heapq.merge` by timestamp restores the order.
        `now_s` is the loop's time, here and below, at which a gate is found open or closed.
        """
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        try:
            for progress in self._assignment.in_turn():
                if progress.partition in taken:
                    continue  # with others that it is read with
                together = self._read_together(progress.partition)
                parts = [part for one in together if (part := self._assignment.get(one)) is not None]
                if len(parts) > 1:
                    limit -= self._take_by_time(parts, limit, now_s, taken)
                    continue
                rows = taken.setdefault(progress.partition, [])
                while limit > 0 and (key_epoch := self._deliverable(progress, now_s)) is not None:
                    records = progress.take(limit, key_epoch.generation)
                    limit -= len(records)
                    rows += records
                if not any(taken.values()):
                    progress.check_damage()
        except KafkaError:
            if not any(taken.values()):
                raise
            # The records taken count as delivered; the next call meets the damaged batch again.
        return {partition: rows for partition, rows in taken.items() if rows}

    def _take_by_time(
        self,
        parts: Sequence[PartitionProgress],
        limit: int,
        now_s: float,
        taken: dict[TopicPartition, list[ConsumerRecord]],
    ) -> int:
        """Take up to `limit` records of partitions that are read together, the oldest first; return their number."""
        rows = [taken.setdefault(part.partition, []) for part in parts]
        heads: list[_Next] = []
        for place, part in enumerate(parts):
            if not any(taken.values()):
                part.check_damage()
            if (found := self._next(part, place, now_s)) is not None:
                heads.append(found)
        heapq.heapify(heads)
        left = limit
        while left > 0 and heads and (len(heads) == len(parts) or not any(part.awaited for part in parts)):
            _, place, generation, batch = heads[0]
            part = parts[place]
            rows[place].append(part.take_next())
            left -= 1
            at_ms = part.next_timestamp(generation) if part.next_is_of(batch) else None
            if at_ms is not None:
                heapq.heapreplace(heads, (at_ms, place, generation, batch))
            elif (found := self._next(part, place, now_s)) is not None:
                heapq.heapreplace(heads, found)
            else:
                heapq.heappop(heads)
        for part in parts:
            if left > 0 and heads and part.awaited:
                self._note_awaited(part.partition, now_s)
            else:
                self._awaited_since_s.pop(part.partition, None)
        return limit - left

    def _note_awaited(self, partition: TopicPartition, now_s: float) -> None:
        """Log a partition that records of others wait for, once it has been for long."""
        since_s = self._awaited_since_s.setdefault(partition, now_s)
        if now_s - since_s >= AWAITED_LOG_S:
            self._awaited_since_s[partition] = math.inf
            log.warning(
                "records that are read together with %s wait: its leader has sent none of its next ones", partition
            )

    def _next(self, progress: PartitionProgress, place: int, now_s: float) -> _Next | None:
        """Return the next deliverable record; batches without records are passed."""
        while (key_epoch := self._deliverable(progress, now_s)) is not None:
            batch = progress.buffered[0]
            at_ms = progress.next_timestamp(key_epoch.generation)
            if at_ms is not None:
                return at_ms, place, key_epoch.generation, batch
        return None

    def take_one(self, limit: int, now_s: float) -> Iterator[ConsumerRecord]:
        """Yield the records of `take(limit)`, each taken when it is requested.

        The caller ensures that nothing happens in between except pause or seek.
        """
        for progress in self._assignment.in_turn():
            while limit > 0 and (key_epoch := self._deliverable(progress, now_s)) is not None:
                generation, batch = key_epoch.generation, progress.buffered[0]
                while limit > 0 and progress.next_is_of(batch) and (records := progress.take(1, generation)):
                    limit -= 1
                    yield records[0]
            if limit > 0:
                progress.check_damage()

    def boundaries(self, *, maybe: bool = False) -> list[Boundary]:
        """Return the boundaries that are reached and not yet crossed; `maybe`: include those with unknown ends.

        Boundaries that the group and the application have passed before are crossed here.
        """
        reached: list[Boundary] = []
        for progress in self._assignment:
            gate = self._gates.gate(progress.partition.topic)
            if gate is None or progress.position == UNKNOWN:
                continue
            for key_epoch in gate.boundaries(progress.partition.partition):
                if key_epoch in progress.crossed:
                    continue
                end = gate.end(key_epoch)
                if end == UNKNOWN:
                    self._want_ends(gate, progress)
                    if maybe:  # the position may be behind the ends of the following ones, too
                        cuts = gate.boundaries(progress.partition.partition)
                        handed_over = any(map(gate.lineage.successors, cuts[cuts.index(key_epoch) :]))
                        reached.append(
                            Boundary(progress, key_epoch, handed_over, end, progress.begin_number, maybe=True)
                        )
                    break
                at = self._next_position(progress)
                if at >= end:  # the commit at the boundary has to reach the end: gates wait for exactly that
                    progress.pass_gap(end)
                # After a seek backwards the group has passed this boundary, but its application reaches it again, with
                # a flush due. A start behind the boundary passes it, unless records whose keys moved are not flushed.
                handed_over = bool(gate.lineage.successors(key_epoch))
                unflushed = handed_over and UNKNOWN < progress.unflushed_from < end
                behind = (progress.read_from >= end and not unflushed) or (
                    key_epoch in progress.flushed and not progress.rewound
                )
                if min(progress.committed, at) >= end and behind:
                    progress.cross(key_epoch)
                elif at >= end or self._is_past(gate, progress, key_epoch):
                    reached.append(Boundary(progress, key_epoch, handed_over, end, progress.begin_number))
                else:
                    break
        return reached

    def _want_ends(self, gate: TopicGate, progress: PartitionProgress) -> None:
        """Request the ends of all boundaries ahead at once, because one after the other takes longer."""
        for key_epoch in gate.boundaries(progress.partition.partition):
            if key_epoch not in progress.crossed and gate.end(key_epoch) == UNKNOWN:
                self._gates.want_end(progress.partition.topic, key_epoch)

    def before_boundaries(self) -> set[TopicPartition]:
        """Return the partitions whose positions hand nothing over: neither at a boundary nor at a possible one."""
        waiting = {boundary.progress.partition for boundary in self.boundaries(maybe=True)}
        return {progress.partition for progress in self._assignment} - waiting

    def key_epoch(self, progress: PartitionProgress) -> tuple[Lineage, KeyEpoch] | None:
        """Return the key epoch of the position; at a key epoch's end, the next one, as far as it is known."""
        gate = self._gates.gate(progress.partition.topic)
        if gate is None or progress.position == UNKNOWN:
            return None
        for key_epoch in gate.boundaries(progress.partition.partition):
            end = gate.end(key_epoch)
            if key_epoch not in progress.crossed and (end == UNKNOWN or self._next_position(progress) < end):
                return gate.lineage, key_epoch
        return gate.lineage, gate.lineage.key_epochs(progress.partition.partition)[-1]

    def announcements(self, now_s: float) -> list[tuple[PartitionProgress, KeyEpoch]]:
        """Return the key epochs whose gates have opened and whose keys are not announced yet."""
        opened: list[tuple[PartitionProgress, KeyEpoch]] = []
        for progress in self._assignment:
            key_epoch = self._next_key_epoch(progress)
            gate = self._gates.gate(progress.partition.topic)
            if key_epoch is None or gate is None or not self._needs_announcing(gate, progress, key_epoch):
                continue
            if self._passes(progress, key_epoch, now_s):
                opened.append((progress, key_epoch))
        return opened

    def skip_deleted(self) -> list[PartitionProgress]:
        """Drop records behind closed gates that were deleted since they were fetched; return where positions moved.

        The gate may wait for another member, whose gate waits for the group to pass the deleted records: a leader
        reports its log start as the end of every key epoch below it. Records of open key epochs are delivered as
        fetched.
        """
        return [
            progress
            for progress in self._assignment
            if progress.position < progress.log_start and self._is_closed(progress) and progress.skip_deleted()
        ]

    def stalled_partitions(self) -> list[TopicPartition]:
        """Return partitions behind closed gates that are not fetched, so that no response reports their log start."""
        return [one.partition for one in self._assignment if not one.fetchable and self._is_closed(one)]

    def _is_closed(self, progress: PartitionProgress) -> bool:
        """Whether a gate blocks fetched records. The application's `holds_back` does not count."""
        key_epoch, gate = self._next_key_epoch(progress), self._gates.gate(progress.partition.topic)
        return key_epoch is not None and gate is not None and bool(self._reasons(gate, progress, key_epoch))

    def _reasons(self, gate: TopicGate, progress: PartitionProgress, key_epoch: KeyEpoch) -> Sequence[Wait]:
        """Return what the key epoch waits for. Without a group only own partitions count (K610)."""
        if self._in_group:
            return gate.waits(key_epoch)
        topic = progress.partition.topic
        return [
            one for one in gate.waits(key_epoch) if TopicPartition(topic, one.key_epoch.partition) in self._assignment
        ]

    def _deliverable(self, progress: PartitionProgress, now_s: float) -> KeyEpoch | None:
        """Return the key epoch of the next batch if it is deliverable now."""
        if progress.paused or not progress.buffered:
            return None
        gate = self._gates.gate(progress.partition.topic)
        if gate is None:
            return KeyEpoch(progress.partition.partition, NO_GENERATION)
        key_epoch = self._next_key_epoch(progress)
        if key_epoch is None or not self._passes(progress, key_epoch, now_s):
            return None
        if self._needs_announcing(gate, progress, key_epoch):
            return None
        return key_epoch

    def _next_key_epoch(self, progress: PartitionProgress) -> KeyEpoch | None:
        """Return the key epoch of the next batch, if all earlier boundaries are crossed and metadata knows it (R11)."""
        gate = self._gates.gate(progress.partition.topic)
        if gate is None or not progress.buffered:
            return None
        key_epoch = gate.key_epoch_at(progress.partition.partition, progress.buffered[0].header.partition_leader_epoch)
        if key_epoch is None:
            self._gates.outdated = True
            return None
        for earlier in gate.boundaries(progress.partition.partition):
            if earlier.generation < key_epoch.generation and earlier not in progress.crossed:
                return None
        return key_epoch

    def _passes(self, progress: PartitionProgress, key_epoch: KeyEpoch, now_s: float) -> bool:
        topic = progress.partition.topic
        gate = self._gates.gate(topic)
        assert gate is not None, "only topics with lineage have gates"
        if self._in_group:
            passes = self._gates.passes(topic, key_epoch, now_s)
            if key_epoch.generation > self._assignment.generations.get(topic, key_epoch.generation):
                # Other members may still have to learn of this generation, and to flush records of older ones. A
                # key epoch without predecessors waits as well: for predecessors of the empty key epochs before it.
                passes = passes and not gate.lineage.predecessors(key_epoch)
            return passes and not self._holds_back(progress.partition, key_epoch.generation)
        reasons = self._reasons(gate, progress, key_epoch)
        for wait in reasons:
            if wait.end == UNKNOWN:  # repeating known news would lead here again
                self._gates.want_end(topic, wait.key_epoch)
        return not reasons

    def _needs_announcing(self, gate: TopicGate, progress: PartitionProgress, key_epoch: KeyEpoch) -> bool:
        return key_epoch not in progress.announced and bool(gate.lineage.predecessors(key_epoch))

    def _is_past(self, gate: TopicGate, progress: PartitionProgress, key_epoch: KeyEpoch) -> bool:
        """Whether the next batch belongs to a later key epoch: after a deletion, the reported end is the log start,
        which lies behind records fetched before.
        """
        if not progress.buffered:
            return False
        coming = gate.key_epoch_at(progress.partition.partition, progress.buffered[0].header.partition_leader_epoch)
        return coming is not None and coming.generation > key_epoch.generation

    def _next_position(self, progress: PartitionProgress) -> int:
        """Return the position, or the next existing offset: compaction leaves gaps."""
        if progress.buffered and progress.buffered[0].unread is None:
            return max(progress.position, progress.buffered[0].header.base_offset)
        return progress.position
