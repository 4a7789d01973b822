"""What may be handed out next, and what has to happen first: the consumer's side of R9-R11 and K618.

A partition's log is a row of segments. Between two of them the owner stops: when everything below a boundary was handed
out *and the application came back for more*, its keys may go elsewhere, so the application flushes
(`on_partition_key_maybe_revoked`), the position is committed, and only then is the boundary crossed. A segment that
waits for other partitions is announced (`on_partition_key_assigned`) once its gate is open and before its first record.

`Deliveries` looks at progress and gates, and decides; the only thing it calls is the application's `holds_back`, which
is a question. `core` has done what has to be done first, and looks again. Pure.
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
    """Whether keys went to other partitions there: only then is there anything to flush for others."""
    end: int
    begun: int
    """The number of the beginning (`PartitionProgress.begun`) that this was found in."""
    maybe: bool = False
    """Where it ends is not known yet: this position may be it."""


class Deliveries:
    """Hands out records of the assigned partitions, in turn, as far as the gates allow."""

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
        """Up to `limit` records that may be handed out now. Raises KafkaError where the first of them is damaged.

        `now_s` is the loop's time, here and below: a gate that is found open or closed is noted with it.
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
            # What was taken counts as handed out: the damage is met again by the next call.
        return {partition: rows for partition, rows in taken.items() if rows}

    def take_one(self, limit: int, now_s: float) -> Iterator[ConsumerRecord]:
        """What `take(limit)` would give, each record taken when it is asked for.

        The caller makes sure that nothing has happened meanwhile, except that a partition was paused or sought.
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
        """The boundaries that have been reached and not yet crossed; `maybe`: those too whose ends are unknown.

        One where nothing is left to do, because the group and the application have been beyond it, is crossed here.
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
                if at >= end:  # the commit at the boundary has to reach the end: gates wait for just that
                    progress.pass_gap(end)
                # After a seek backwards the group has been here, but its application is here again, with a flush due.
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
        """Of all boundaries that are still to be crossed, at once: one answer after the other would take its time."""
        for segment in gate.boundaries(progress.partition.partition):
            if segment not in progress.crossed and gate.end(segment) == UNKNOWN:
                self._gates.want_end(progress.partition.topic, segment)

    def before_boundaries(self) -> set[TopicPartition]:
        """The partitions whose positions pass nothing on: not at a boundary, nor where one may be."""
        waiting = {boundary.progress.partition for boundary in self.boundaries(maybe=True)}
        return {progress.partition for progress in self._assignment} - waiting

    def segment(self, progress: PartitionProgress) -> tuple[Lineage, Segment] | None:
        """The segment that the position is in; where a segment ends it is in the next one, as far as that is known."""
        gate = self._gates.gate(progress.partition.topic)
        if gate is None or progress.position == UNKNOWN:
            return None
        for segment in gate.boundaries(progress.partition.partition):
            end = gate.end(segment)
            if segment not in progress.crossed and (end == UNKNOWN or self._reached(progress) < end):
                return gate.lineage, segment
        return gate.lineage, gate.lineage.segments(progress.partition.partition)[-1]

    def announcements(self, now_s: float) -> list[tuple[PartitionProgress, Segment]]:
        """The segments whose gates have opened and whose keys the application has not been told of."""
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

        The gate may wait for another member, whose gate waits for the group to pass the records that are gone: a leader
        names its log start as the end of every segment below it. Open segments are handed out as they were fetched.
        """
        return [
            progress
            for progress in self._assignment
            if progress.position < progress.log_start and self._is_closed(progress) and progress.skip_deleted()
        ]

    def stalled(self) -> list[TopicPartition]:
        """Partitions behind closed gates that are not fetched any further, so that no answer tells their log start."""
        return [one.partition for one in self._assignment if not one.fetchable and self._is_closed(one)]

    def _is_closed(self, progress: PartitionProgress) -> bool:
        """Whether a gate keeps back what was fetched. The application's `holds_back` does not count."""
        segment, gate = self._next_segment(progress), self._gates.gate(progress.partition.topic)
        return segment is not None and gate is not None and bool(self._reasons(gate, progress, segment))

    def _reasons(self, gate: TopicGate, progress: PartitionProgress, segment: Segment) -> Sequence[Wait]:
        """What the segment waits for. Without a group no other member commits, so only own partitions count (K610)."""
        if self._in_group:
            return gate.waits(segment)
        topic = progress.partition.topic
        return [one for one in gate.waits(segment) if TopicPartition(topic, one.segment.partition) in self._assignment]

    def _deliverable(self, progress: PartitionProgress, now_s: float) -> Segment | None:
        """The segment of the next batch if it may be handed out now."""
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
        """The segment of the next batch, if all boundaries before it were crossed and metadata knows it (R11)."""
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
                # Others may still have to find out about this generation, and to flush what they read of older ones.
                # A segment without predecessors waits as well: for those of empty ones before it.
                passes = passes and not gate.lineage.predecessors(segment)
            return passes and not self._holds_back(progress.partition, segment.generation)
        reasons = self._reasons(gate, progress, segment)
        for wait in reasons:
            if wait.end == UNKNOWN:  # to be told the same again would be news, which leads here again
                self._gates.want_end(topic, wait.segment)
        return not reasons

    def _needs_announcing(self, gate: TopicGate, progress: PartitionProgress, segment: Segment) -> bool:
        return segment not in progress.announced and bool(gate.lineage.predecessors(segment))

    def _is_past(self, gate: TopicGate, progress: PartitionProgress, segment: Segment) -> bool:
        """Whether the next batch is of a later segment: where records were deleted meanwhile, the end is said to lie
        where the log begins now, behind what was fetched before."""
        if not progress.buffered:
            return False
        coming = gate.segment_at(progress.partition.partition, progress.buffered[0].header.partition_leader_epoch)
        return coming is not None and coming.generation > segment.generation

    def _reached(self, progress: PartitionProgress) -> int:
        """The position, or beyond it the first offset that still exists: compaction leaves gaps."""
        if progress.buffered and progress.buffered[0].unread is None:
            return max(progress.position, progress.buffered[0].header.base_offset)
        return progress.position
