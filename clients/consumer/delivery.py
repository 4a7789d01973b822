"""Decides which records may be delivered next, and what must come first: the consumer's side of R9-R11 and K618.

A partition's log is a sequence of segments. The owner stops between two of them: when everything below a boundary was
delivered *and the application asked for more*, its keys may move. So the application flushes
(`on_partition_key_maybe_revoked`), the position is committed, and only then is the boundary crossed. A segment that
waits for other partitions is announced (`on_partition_key_assigned`) once its gate is open and before its first record.

`Deliveries` decides from progress and gates; the only callback that it calls is the application's `holds_back`. `core`
takes the steps that must come first, and asks again. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from anabranch.clients.consumer.consumer_record import NO_GENERATION, ConsumerRecord
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.consumer.progress import UNKNOWN, Assignment, PartitionProgress
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.lineage import Lineage, Segment
from anabranch.protocol.order_gates import Wait
from anabranch.protocol.topic_partition import TopicPartition


class Boundary(NamedTuple):
    """A segment that was read to its end."""

    progress: PartitionProgress
    segment: Segment
    handed_over: bool
    """Whether keys moved to other partitions there: only then is a flush needed."""
    end: int
    begun: int
    """The begin number (`PartitionProgress.begun`) under which this was found."""
    maybe: bool = False
    """The segment's end is unknown: this position may be it."""


class Deliveries:
    """Delivers records of the assigned partitions in turn, as far as the gates allow."""

    def __init__(
        self,
        assignment: Assignment,
        gates: Gates,
        *,
        in_group: bool,
        holds_back: Callable[[TopicPartition, int], bool],
    ) -> None:
        self._assignment = assignment
        self._gates = gates
        self._in_group = in_group
        self._holds_back = holds_back

    def take(self, limit: int, now_s: float) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `limit` deliverable records. Raises KafkaError if the first of them is damaged.

        `now_s` is the loop's time, here and below, at which a gate is found open or closed.
        """
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        try:
            for progress in self._assignment.in_turn():
                rows = taken.setdefault(progress.partition, [])
                while limit > 0 and (segment := self._deliverable(progress, now_s)) is not None:
                    records = progress.take(limit, segment.generation)
                    limit -= len(records)
                    rows += records
                if not any(taken.values()):
                    progress.check_damage()
        except KafkaError:
            if not any(taken.values()):
                raise
            # The records taken count as delivered; the next call meets the damaged batch again.
        return {partition: rows for partition, rows in taken.items() if rows}

    def take_one(self, limit: int, now_s: float) -> Iterator[ConsumerRecord]:
        """Yield the records of `take(limit)`, each taken when it is requested.

        The caller ensures that nothing happens in between except pause or seek.
        """
        for progress in self._assignment.in_turn():
            while limit > 0 and (segment := self._deliverable(progress, now_s)) is not None:
                generation, batch = segment.generation, progress.buffered[0]
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
            for segment in gate.boundaries(progress.partition.partition):
                if segment in progress.crossed:
                    continue
                end = gate.end(segment)
                if end == UNKNOWN:
                    self._want_ends(gate, progress)
                    if maybe:
                        handed_over = bool(gate.lineage.successors(segment))
                        reached.append(Boundary(progress, segment, handed_over, end, progress.begun, maybe=True))
                    break
                at = self._reached(progress)
                if at >= end:  # the commit at the boundary has to reach the end: gates wait for exactly that
                    progress.pass_gap(end)
                # After a seek backwards the group has passed this boundary, but its application reaches it again, with
                # a flush due.
                behind = progress.read_from >= end or (segment in progress.flushed and not progress.rewound)
                if min(progress.committed, at) >= end and behind:
                    progress.cross(segment)
                elif at >= end or self._is_past(gate, progress, segment):
                    handed_over = bool(gate.lineage.successors(segment))
                    reached.append(Boundary(progress, segment, handed_over, end, progress.begun))
                else:
                    break
        return reached

    def _want_ends(self, gate: TopicGate, progress: PartitionProgress) -> None:
        """Request the ends of all boundaries ahead at once, because one after the other takes longer."""
        for segment in gate.boundaries(progress.partition.partition):
            if segment not in progress.crossed and gate.end(segment) == UNKNOWN:
                self._gates.want_end(progress.partition.topic, segment)

    def before_boundaries(self) -> set[TopicPartition]:
        """Return the partitions whose positions hand nothing over: neither at a boundary nor at a possible one."""
        waiting = {boundary.progress.partition for boundary in self.boundaries(maybe=True)}
        return {progress.partition for progress in self._assignment} - waiting

    def segment(self, progress: PartitionProgress) -> tuple[Lineage, Segment] | None:
        """Return the segment of the position; at a segment's end, the next one, as far as it is known."""
        gate = self._gates.gate(progress.partition.topic)
        if gate is None or progress.position == UNKNOWN:
            return None
        for segment in gate.boundaries(progress.partition.partition):
            end = gate.end(segment)
            if segment not in progress.crossed and (end == UNKNOWN or self._reached(progress) < end):
                return gate.lineage, segment
        return gate.lineage, gate.lineage.segments(progress.partition.partition)[-1]

    def announcements(self, now_s: float) -> list[tuple[PartitionProgress, Segment]]:
        """Return the segments whose gates have opened and whose keys are not announced yet."""
        opened: list[tuple[PartitionProgress, Segment]] = []
        for progress in self._assignment:
            segment = self._next_segment(progress)
            gate = self._gates.gate(progress.partition.topic)
            if segment is None or gate is None or not self._needs_announcing(gate, progress, segment):
                continue
            if self._passes(progress, segment, now_s):
                opened.append((progress, segment))
        return opened

    def skip_deleted(self) -> list[PartitionProgress]:
        """Drop records behind closed gates that were deleted since they were fetched; return where positions moved.

        The gate may wait for another member, whose gate waits for the group to pass the deleted records: a leader
        reports its log start as the end of every segment below it. Records of open segments are delivered as fetched.
        """
        return [
            progress
            for progress in self._assignment
            if progress.position < progress.log_start and self._is_closed(progress) and progress.skip_deleted()
        ]

    def stalled(self) -> list[TopicPartition]:
        """Return partitions behind closed gates that are not fetched, so that no response reports their log start."""
        return [one.partition for one in self._assignment if not one.fetchable and self._is_closed(one)]

    def _is_closed(self, progress: PartitionProgress) -> bool:
        """Whether a gate blocks fetched records. The application's `holds_back` does not count."""
        segment, gate = self._next_segment(progress), self._gates.gate(progress.partition.topic)
        return segment is not None and gate is not None and bool(self._reasons(gate, progress, segment))

    def _reasons(self, gate: TopicGate, progress: PartitionProgress, segment: Segment) -> Sequence[Wait]:
        """Return what the segment waits for. Without a group only own partitions count (K610)."""
        if self._in_group:
            return gate.waits(segment)
        topic = progress.partition.topic
        return [one for one in gate.waits(segment) if TopicPartition(topic, one.segment.partition) in self._assignment]

    def _deliverable(self, progress: PartitionProgress, now_s: float) -> Segment | None:
        """Return the segment of the next batch if it is deliverable now."""
        if progress.paused or not progress.buffered:
            return None
        gate = self._gates.gate(progress.partition.topic)
        if gate is None:
            return Segment(progress.partition.partition, NO_GENERATION)
        segment = self._next_segment(progress)
        if segment is None or not self._passes(progress, segment, now_s):
            return None
        if self._needs_announcing(gate, progress, segment):
            return None
        return segment

    def _next_segment(self, progress: PartitionProgress) -> Segment | None:
        """Return the segment of the next batch, if all earlier boundaries are crossed and metadata knows it (R11)."""
        gate = self._gates.gate(progress.partition.topic)
        if gate is None or not progress.buffered:
            return None
        segment = gate.segment_at(progress.partition.partition, progress.buffered[0].header.partition_leader_epoch)
        if segment is None:
            self._gates.outdated = True
            return None
        for earlier in gate.boundaries(progress.partition.partition):
            if earlier.generation < segment.generation and earlier not in progress.crossed:
                return None
        return segment

    def _passes(self, progress: PartitionProgress, segment: Segment, now_s: float) -> bool:
        topic = progress.partition.topic
        gate = self._gates.gate(topic)
        assert gate is not None, "only topics with lineage have gates"
        if self._in_group:
            passes = self._gates.passes(topic, segment, now_s)
            if segment.generation > self._assignment.generations.get(topic, segment.generation):
                # Other members may still have to learn of this generation, and to flush records of older ones. A
                # segment without predecessors waits as well: for predecessors of the empty segments before it.
                passes = passes and not gate.lineage.predecessors(segment)
            return passes and not self._holds_back(progress.partition, segment.generation)
        reasons = self._reasons(gate, progress, segment)
        for wait in reasons:
            if wait.end == UNKNOWN:  # repeating known news would lead here again
                self._gates.want_end(topic, wait.segment)
        return not reasons

    def _needs_announcing(self, gate: TopicGate, progress: PartitionProgress, segment: Segment) -> bool:
        return segment not in progress.announced and bool(gate.lineage.predecessors(segment))

    def _is_past(self, gate: TopicGate, progress: PartitionProgress, segment: Segment) -> bool:
        """Whether the next batch belongs to a later segment: after a deletion, the reported end is the log start, which
        lies behind records fetched before.
        """
        if not progress.buffered:
            return False
        coming = gate.segment_at(progress.partition.partition, progress.buffered[0].header.partition_leader_epoch)
        return coming is not None and coming.generation > segment.generation

    def _reached(self, progress: PartitionProgress) -> int:
        """Return the position, or the next existing offset: compaction leaves gaps."""
        if progress.buffered and progress.buffered[0].unread is None:
            return max(progress.position, progress.buffered[0].header.base_offset)
        return progress.position
