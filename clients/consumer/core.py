"""Decides a consumer's next step: deliver records, or the action that must come first.

`ConsumerCore` has the whole state of one consumer: its membership, its assignment and progress, the gates, the
application's notifications and commits. `next_step` evaluates all of it at one moment, and returns the first due step:
an effect (`steps`), or `DeliverRecords`. `poll_loop` executes an effect, which takes time, reports its result
(`on_step_done`, `on_committed`, `learn`, ...), and asks again. So no fact from before an await is trusted after it, and
records are delivered only on `DeliverRecords`. The order:

    an uncertain member confirms its membership; a lost one reports it and rejoins               R21
    boundaries that were reached: flush, commit, cross                                           R10, K618
    rebalances: revoke, join, adopt, notify (`ownership`)                                        R19, KIP-429
    positions: starting offsets, their commits, resets                                           R10, R20
    the periodic automatic commit
    announcements of opened gates                                                                R9, K618
    waits while the audit has too many unsent events
    then records, if no other member can own these partitions                                    R21

A commit opens the gates of others. So the application flushes before each commit that reaches the end of a key epoch,
and before each rebalance. Records count as processed by these rules:

    enable_auto_commit=True     asking for more means that everything delivered is processed; boundaries are committed
                                as soon as they are reached
    enable_auto_commit=False    only the application decides what is processed; a boundary is crossed once it has
    committed
                                everything it was given. What lies behind that and has no record for it (the start of an
                                empty partition, a transaction marker) is committed on its behalf. A commit that was
                                part of a producer's transaction counts too: the coordinator is asked for it, and tells
                                only when the transaction is over (KIP-447)

A step that fails (the group refuses a commit because it has moved on, no coordinator answers) is postponed until there
is news; other steps do not wait for it. A member that keeps its partitions commits nothing until a rebalance ends: it
may not know yet of a resize that others have seen, and would hand keys over at a boundary without a flush. It learns of
the resize before the rebalance ends (R19). Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from anabranch.clients.consumer.assignment import Assignment
from anabranch.clients.consumer.classic_group_membership import ClassicMembership
from anabranch.clients.consumer.delivery import Boundary, Deliveries, alone
from anabranch.clients.consumer.ownership import Ownership
from anabranch.clients.consumer.progress import UNKNOWN, PartitionProgress
from anabranch.clients.consumer.steps import (
    AskMembership,
    Commit,
    DeliverRecords,
    FindResetPositions,
    FindStartingPositions,
    Flush,
    Flushed,
    LearnCommits,
    MakeRoom,
    NotifyAssigned,
    NotifyGone,
    NotifyKeysAssigned,
    NotifyLost,
    NotifyRevoked,
    Reason,
    Step,
    StoreAudit,
    Wait,
)
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.clients.metadata import ClusterMetadata
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

DELIVER = DeliverRecords()
WAIT = Wait()


class ConsumerCore:
    """The state of one consumer; `membership` is None without a group.

    `auto_commit_s` is the interval of automatic commits, None if only the application commits; `holds_back` and
    `read_together` are the application's (`PartitionKeyRebalanceListener`).
    """

    def __init__(
        self,
        topics: Sequence[str],
        membership: ClassicMembership | None,
        *,
        ordered: bool,
        auto_commit_s: float | None,
        audited: bool,
        holds_back: Callable[[TopicPartition, int], bool],
        read_together: Callable[[TopicPartition], Sequence[TopicPartition]] = alone,
    ) -> None:
        self.membership = membership
        self.assignment = Assignment()
        self.gates = Gates(ordered=ordered)
        self.deliveries = Deliveries(
            self.assignment,
            self.gates,
            in_group=membership is not None,
            holds_back=holds_back,
            read_together=read_together,
        )
        self.ownership = Ownership(topics, self.assignment, self.gates, membership, automatic=auto_commit_s is not None)
        self._auto_commit_s = auto_commit_s
        self._audited = audited
        self._commit_due_s = 0.0
        self._starts: dict[TopicPartition, tuple[int, int]] = {}
        """Starting positions, as (begin number, offset), until the group has committed them.

        They come from the reset policy or follow deleted records. Gates may wait for exactly these (K612).
        """
        self._being_flushed: set[tuple[TopicPartition, KeyEpoch]] = set()
        """Ends of key epochs for which the application's flush is running."""
        self._put_off: set[object] = set()
        """Kinds of steps that are postponed until there is news."""

    # decision

    def begin(self, elapsed_s: float) -> None:
        """Start reading: the first automatic commit is due an interval later. The clock is that of `next_step`."""
        self._commit_due_s = elapsed_s + (self._auto_commit_s or 0)

    def begin_round(self) -> None:
        """Start a round, on the application's request or on news: postponed steps may be retried."""
        self._put_off.clear()

    def next_step(self, now_s: float, elapsed_s: float) -> Step:
        """Return the next step; `DeliverRecords` allows to deliver records until the next await.

        `now_s` is the loop's time, `elapsed_s` that of a clock that never stops (`Lease`). Raises KafkaError if a topic
        is refused for good, or the group refuses this member.
        """
        if self.membership is not None and self.membership.unsure(elapsed_s):
            return AskMembership()
        if self.membership is not None and self.membership.lost:
            return self.ownership.next_step() or WAIT  # its flush or commit would overwrite those of others
        return (
            self._cross()
            or self.ownership.next_step()
            or self._find_positions()
            or self._commit_when_due(elapsed_s)
            or self._announce(now_s)
            or self._make_room()
            or (DELIVER if self.membership is None or self.membership.may_commit(elapsed_s) else WAIT)
        )

    def is_undisturbed(self, elapsed_s: float) -> bool:
        """Whether another record may follow the one just delivered, without news in between."""
        if self.membership is None:
            return True
        due = self._auto_commit_s is not None and elapsed_s >= self._commit_due_s
        return self.membership.may_commit(elapsed_s) and not due

    def _cross(self) -> Step | None:
        if self.ownership.joining:
            return None
        boundaries = self.deliveries.boundaries()
        flush = self._flush(boundaries) if boundaries else None
        if flush is not None:
            return flush
        ready = [one for one in boundaries if not one.handed_over or one.key_epoch in one.progress.flushed]
        if self._auto_commit_s is None and self.membership is not None:
            unprocessed = frozenset(one.progress.partition for one in ready if not one.progress.processed)
            if unprocessed and LearnCommits not in self._put_off:
                return LearnCommits(unprocessed)
            ready = [one for one in ready if one.progress.processed]
        if not ready or Reason.BOUNDARY in self._put_off:
            return None
        positions = {one.progress.partition: one.progress.position for one in ready}
        return Commit(positions, Reason.BOUNDARY, ready)

    def _flush(self, boundaries: Iterable[Boundary]) -> Flush | None:
        """Notify the application once of each boundary where keys move. Its callback may lead here again."""
        due = [
            Flushed(one.progress, one.begin_number, one.key_epoch, reached=not one.maybe)
            for one in boundaries
            if one.handed_over
            and one.key_epoch not in one.progress.flushed
            and (one.progress.partition, one.key_epoch) not in self._being_flushed
        ]
        return Flush(tuple(due)) if due else None

    def _find_positions(self) -> Step | None:
        if not self.assignment.positioned and FindStartingPositions not in self._put_off:
            return FindStartingPositions()
        for progress in self.deliveries.skip_deleted():
            log.warning("%s: records before offset %d were deleted", progress.partition, progress.position)
            self._starts[progress.partition] = progress.begin_number, progress.position
        starts = self._starts_to_commit()
        if starts:
            return starts
        if FindResetPositions not in self._put_off and any(progress.must_reset for progress in self.assignment):
            return FindResetPositions()
        return None

    def _starts_to_commit(self) -> Commit | LearnCommits | Flush | None:
        """Commit starting positions of partitions that are still assigned and have delivered nothing since.

        Delivered records may be part of a transaction by now, over which a later plain commit would win. If the group
        continued without this member, others may have committed their records. A start behind deleted records waits
        until the application has committed everything delivered before. It may be behind the ends of key epochs, whose
        records the application flushes first.
        """
        if not self._starts or self.ownership.joining:
            return None
        known = {one: self.assignment.get(one) for one in self._starts}
        rows = [
            row
            for one, row in known.items()
            if row
            and row.begin_number == self._starts[one][0]
            and max(row.committed + 1, row.handed_out) <= self._starts[one][1]
        ]
        self._starts = {row.partition: self._starts[row.partition] for row in rows}
        unprocessed = {row.partition for row in rows if self._auto_commit_s is None and not row.processed}
        if unprocessed and self.membership is not None and LearnCommits not in self._put_off:
            return LearnCommits(frozenset(unprocessed))
        due = {one: offset for one, (_, offset) in self._starts.items() if one not in unprocessed}
        unflushed = {row.partition: due[row.partition] for row in rows if row.unflushed and row.partition in due}
        if unflushed and (flush := self.flush_before(unflushed)) is not None:
            return flush
        return Commit(due, Reason.START) if due and Reason.START not in self._put_off else None

    def _commit_when_due(self, elapsed_s: float) -> Step | None:
        """Make the periodic commit. Positions at a boundary, or at a possible one, wait for its flush.

        This includes known ends, which may have become known only after boundaries were last crossed.
        """
        if self._auto_commit_s is None or elapsed_s < self._commit_due_s:
            return None
        self._commit_due_s = elapsed_s + self._auto_commit_s
        return self.commit_of_positions()

    def commit_of_positions(self) -> Commit | None:
        """Return the commit of every position that hands no keys over; None if there is none, or during a rebalance."""
        if self.ownership.joining:
            return None
        short = self.deliveries.before_boundaries()
        offsets = {one: at for one, at in self.assignment.positions().items() if one in short}
        return Commit(offsets, Reason.DUE) if offsets else None

    def _announce(self, now_s: float) -> Step | None:
        """Announce opened gates, before any record behind them is delivered."""
        opened = self.deliveries.announcements(now_s)
        return NotifyKeysAssigned(tuple(opened)) if opened else None

    def _make_room(self) -> Step | None:
        return MakeRoom() if self._audited and MakeRoom not in self._put_off else None

    # calls of the application

    def flush_before(self, offsets: Mapping[TopicPartition, int]) -> Flush | None:
        """Return the flush that must precede this commit: the key epoch ends, or possible ends, that it reaches."""
        return self._flush(
            one
            for one in self.deliveries.boundaries(maybe=True)
            if offsets.get(one.progress.partition, UNKNOWN) >= max(one.end, 0)
        )

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset: gates are evaluated again. Raises KeyError if the partition is not assigned."""
        self.assignment[partition].seek(offset)
        self.gates.forget({partition})

    # results and news

    def learn(self, metadata: ClusterMetadata) -> None:
        """Adopt newer metadata."""
        self.ownership.metadata = metadata
        self.gates.refresh(metadata)

    def flushing(self, step: Flush) -> None:
        """Note that the application's flush runs, so that it is not called again meanwhile."""
        self._being_flushed |= _ends(step)

    def flush_ended(self, step: Flush) -> None:
        """Note that the flush ended or failed."""
        self._being_flushed -= _ends(step)

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current begin numbers of these partitions, to pass to `on_committed` with the offsets."""
        rows = (self.assignment.get(partition) for partition in partitions)
        return {row.partition: row.begin_number for row in rows if row is not None}

    def on_committed(self, offsets: Mapping[TopicPartition, int], begin_numbers: Mapping[TopicPartition, int]) -> None:
        """Note committed offsets, sent under the begin numbers in `begin_numbers`."""
        for partition, offset in offsets.items():
            progress = self.assignment.get(partition)
            if progress is not None:
                progress.note_committed(offset, begin_numbers.get(partition, UNKNOWN))
        self.gates.note_committed(offsets)

    def learned_commits(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note the group's committed offsets, by whichever way they were committed."""
        for partition, offset in offsets.items():
            progress = self.assignment.get(partition)
            if progress is None:
                continue
            if offset > progress.committed or (progress.rewound and offset != progress.committed):
                progress.note_committed(offset, progress.begin_number)

    def begin_at_commits(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Start partitions without a position at these committed offsets (-1: none)."""
        self.gates.note_committed(offsets)
        for partition, offset in offsets.items():
            progress = self.assignment.get(partition)
            if offset != UNKNOWN and progress is not None and progress.position == UNKNOWN:
                progress.begin(offset, committed=offset)

    def begin_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Start at the reset policy's offsets where the group has none. Others' gates may wait for these (K612)."""
        for partition, offset in starts.items():
            progress = self.assignment.get(partition)
            if progress is not None and progress.position == UNKNOWN:  # otherwise the application called seek meanwhile
                progress.begin(offset)
                self._note_start(progress)

    def reset_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue at the reset policy's offsets in partitions whose positions are out of range.

        The range may have changed since, so before a position goes back, it is fetched once more.
        """
        for partition, offset in offsets.items():
            progress = self.assignment.get(partition)
            if progress is None or not progress.must_reset:
                continue
            if offset < progress.position and not progress.fetched_again:
                progress.confirm_range()
            else:
                log.warning("%s: offset %d is out of range, continuing at %d", partition, progress.position, offset)
                progress.begin(offset, committed=progress.committed)
                self._note_start(progress)

    def _note_start(self, progress: PartitionProgress) -> None:
        if self.gates.gate(progress.partition.topic) is not None:
            self._starts[progress.partition] = progress.begin_number, progress.position

    def note_log_start(self, partition: TopicPartition, offset: int) -> None:
        """Note the log start offset that a leader reported."""
        progress = self.assignment.get(partition)
        if progress is not None:
            progress.note_log_start(offset)

    def starts_looked_up(self, partitions: Collection[TopicPartition]) -> None:
        """Note that positions were looked up: reading has started if all existing partitions have one."""
        rows = [(partition, self.assignment.get(partition)) for partition in partitions]
        missing = any(
            row is not None and row.position == UNKNOWN and self.ownership.metadata.partition(*partition) is not None
            for partition, row in rows
        )
        self.assignment.note_positioned(complete=not missing)

    def on_step_done(self, step: Step) -> None:
        """Complete a step. Only what is unchanged since its decision counts."""
        match step:
            case Flush():
                for row in step.rows:
                    stands = row.reached and row.progress.begin_number == row.begin_number
                    row.progress.flush(row.key_epoch if stands else None)
            case Commit(boundaries=boundaries):
                for one in boundaries:
                    if one.progress.begin_number == one.begin_number:
                        one.progress.cross(one.key_epoch)
            case NotifyKeysAssigned():
                for progress, key_epoch in step.rows:  # the application was notified of them, even after a seek
                    progress.announce(key_epoch)
            case NotifyRevoked() | NotifyLost():
                self.ownership.on_notified_revoked(step.partitions)
            case NotifyGone():
                self.ownership.on_notified_gone()
            case NotifyAssigned():
                self.ownership.on_notified_assigned()
            case LearnCommits() | FindStartingPositions() | FindResetPositions() | MakeRoom():
                self._put_off.add(type(step))
        if _stores_for_departure(step):
            self.ownership.on_positions_stored()

    def postpone(self, step: Step) -> None:
        """Postpone a step that failed: the group has moved on, or does not answer."""
        self._put_off.add(step.reason if isinstance(step, Commit) else type(step))
        if _stores_for_departure(step):
            self.ownership.on_positions_stored()  # the next owner starts at an earlier offset


def _ends(step: Flush) -> set[tuple[TopicPartition, KeyEpoch]]:
    return {(row.progress.partition, row.key_epoch) for row in step.rows if row.key_epoch is not None}


def _stores_for_departure(step: Step) -> bool:
    return isinstance(step, StoreAudit) or (isinstance(step, Commit) and step.reason is Reason.DEPARTURE)
