"""Passing keys on to other members, and taking them over: flush, commit, cross; then announce (R10, K618, I5).

A commit is what opens the gates of others. So before any commit that reaches the end of a segment, and before any
rebalance, the application is told to flush, and before any commit and any rebalance the audit of what it was given is
stored; a commit in a producer's transaction waits for that, too (`ConsumerGroupMetadata.before_commit`). Who commits
differs:

    enable_auto_commit=True     asking for more says that everything handed out is processed; boundaries are committed
                                as soon as they are reached
    enable_auto_commit=False    only the application says what is processed; a boundary is crossed once it has committed
                                everything it was given. What lies behind that and has no record for it (the start of an
                                empty partition, a transaction marker) is committed on its behalf. A commit that was
                                part of a producer's transaction counts too: the coordinator is asked for it, and tells
                                only when the transaction is over (KIP-447)

A commit that the group refuses because it has moved on is no error: the new owners read again what was not committed.

While a member that keeps its partitions waits for the end of a rebalance, nothing is committed: it may not know yet of
a resize that the others have seen, and would pass on keys at a boundary without a flush. It learns of it before the
rebalance is over (R19).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final

from anabranch.clients.consumer.delivery import Boundary, Deliveries, mark_crossed
from anabranch.clients.consumer.delivery_audit import DeliveryAudit
from anabranch.clients.consumer.gatekeeper import Gatekeeper
from anabranch.clients.consumer.group_session import GroupSession
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener, tell
from anabranch.clients.consumer.progress import UNKNOWN, Assignment, PartitionProgress
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import Segment
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

MEMBERSHIP_LOST: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)


class HandOver:
    """What one consumer does when keys leave it or come to it."""

    def __init__(
        self,
        assignment: Assignment,
        deliveries: Deliveries,
        gatekeeper: Gatekeeper,
        session: GroupSession | None,
        listener: PartitionKeyRebalanceListener,
        *,
        audit: DeliveryAudit | None,
        automatic: bool,
        on_change: Callable[[], None],
        rebalancing: Callable[[], bool],
    ) -> None:
        self._assignment = assignment
        self._deliveries = deliveries
        self._gatekeeper = gatekeeper
        self._session = session
        self._listener = listener
        self._audit = audit
        self._automatic = automatic
        self._on_change = on_change
        self._rebalancing = rebalancing
        self._starts: dict[TopicPartition, int] = {}
        self._storing = asyncio.Lock()
        self._being_flushed: set[tuple[TopicPartition, Segment]] = set()

    async def cross(self) -> None:
        """Go beyond the boundaries that have been reached: flush, commit, cross."""
        if self._rebalancing():
            return
        boundaries = self._deliveries.boundaries()
        if not boundaries:
            return
        await self._flush(boundaries)
        if not self._automatic:
            await self._learn_commits({one.progress.partition for one in boundaries if not one.progress.processed})
        ready = [one for one in boundaries if self._automatic or self._session is None or one.progress.processed]
        positions = {one.progress.partition: one.progress.position for one in ready}
        if not ready or not await self._store_quietly(positions):
            return
        mark_crossed(ready)
        self._on_change()

    async def _learn_commits(self, partitions: Collection[TopicPartition]) -> None:
        """What a transaction has committed for us, nobody else tells."""
        if self._session is None or not partitions:
            return
        try:
            committed = await self._session.committed(sorted(partitions))
        except (ConnectionError, TimeoutError, KafkaError) as error:
            log.info("not known how far the group is: %s", error)
            return
        for partition, offset in committed.items():
            progress = self._assignment.get(partition)
            if progress is None:
                continue
            if offset > progress.committed or (progress.rewound and offset != progress.committed):
                progress.note_committed(offset)

    async def announce(self) -> None:
        """Tell of the gates that have opened, before anything behind them is handed out."""
        opened = self._deliveries.announcements()
        if opened:
            await tell(self._listener.on_partition_key_assigned, {row.partition for row, _ in opened})
            for progress, segment in opened:
                progress.announced.add(segment)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """The application's own commit: of everything handed out, or of these offsets. `KafkaError` if refused."""
        wanted = self._assignment.positions() if offsets is None else offsets
        await self._flush(
            boundary
            for boundary in self._deliveries.boundaries(maybe=True)
            if boundary.progress.partition in wanted and wanted[boundary.progress.partition] >= boundary.end
        )
        await self._store(wanted)

    async def commit_positions(self) -> None:
        """The commit that is due every now and then. What stands at a boundary, or may, waits for its flush.

        Also where the end is known: it may have become known only after the boundaries were last crossed.
        """
        if self._rebalancing():
            return
        short = self._deliveries.short_of_boundaries()
        positions = {one: offset for one, offset in self._assignment.positions().items() if one in short}
        await self._store_quietly(positions)

    def note_starts(self, starts: Mapping[TopicPartition, int]) -> None:
        """Where reading begins in partitions without an offset: others' gates may wait for just that (K612)."""
        self._starts.update({one: at for one, at in starts.items() if self._gatekeeper.gate(one.topic)})

    async def commit_starts(self) -> None:
        """Commit what was noted, of partitions that are still ours and of which nothing was handed out yet.

        What was may stand in a transaction by now, which a later plain commit would win against when it is decided.
        """
        if not self._starts or self._rebalancing():
            return
        starts, self._starts = self._starts, {}
        known = {one: self._assignment.get(one) for one in starts}
        untouched = {one for one, row in known.items() if row and row.committed == row.handed_out == UNKNOWN}
        await self._store_quietly({one: at for one, at in starts.items() if one in untouched})

    async def give_up(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """These, or all, go back to the group: flush, tell, commit. Nothing more of them may be handed out then."""
        leaving = [one for one in self._assignment if partitions is None or one.partition in partitions]
        owned = {progress.partition for progress in leaving}
        if not owned:
            return
        if self._session is not None and (self._session.lost or self._session.unsure or self._session.failure):
            await tell(self._listener.on_partitions_lost, owned)
            return
        await self._flush_unflushed(leaving)
        await tell(self._listener.on_partitions_revoked, owned)
        await self._store_positions(owned)

    async def pause_for_rebalance(self) -> None:
        """Everything that was read is flushed and committed, though it is kept: the group may move keys meanwhile."""
        await self._flush_unflushed(list(self._assignment))
        await self._store_positions(self._assignment.positions().keys())

    async def flush_audit(self) -> None:
        """Return when the audit of everything that was handed out is stored."""
        if self._audit is not None:
            await self._audit.flush()

    async def make_room(self) -> None:
        """Wait while there is too much that the audit could not send: more is handed out after that."""
        if self._audit is not None:
            await self._audit.make_room()

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Tell of partitions that are not there any more."""
        if partitions:
            await tell(self._listener.on_partitions_lost, partitions)

    async def take_over(self, partitions: Collection[TopicPartition]) -> None:
        """Tell of a new assignment."""
        await tell(self._listener.on_partitions_assigned, partitions)

    async def _flush_unflushed(self, rows: Collection[PartitionProgress]) -> None:
        """Tell the application to flush what was read of these since it was last told."""
        unflushed = [progress for progress in rows if progress.unflushed]
        keyed = {one.partition for one in unflushed if self._gatekeeper.gate(one.partition.topic) is not None}
        if keyed:
            await tell(self._listener.on_partition_key_maybe_revoked, keyed)
        for progress in unflushed:
            progress.unflushed = False

    async def _store_positions(self, partitions: Collection[TopicPartition]) -> None:
        """Commit them, if that is not the application's business; the audit is stored in any case."""
        if self._automatic:
            positions = self._assignment.positions()
            await self._store_quietly({one: at for one, at in positions.items() if one in partitions})
        else:
            await self._quietly(self.flush_audit())

    async def _flush(self, boundaries: Iterable[Boundary]) -> None:
        """Tell the application to flush what these boundaries pass on, once for each."""
        due = [
            boundary
            for boundary in boundaries
            if boundary.handed_over
            and boundary.segment not in boundary.progress.flushed
            # The callback may commit, which leads here again.
            and (boundary.progress.partition, boundary.segment) not in self._being_flushed
        ]
        if not due:
            return
        rows = {(boundary.progress.partition, boundary.segment) for boundary in due}
        self._being_flushed |= rows
        try:
            await tell(self._listener.on_partition_key_maybe_revoked, {partition for partition, _ in rows})
        finally:
            self._being_flushed -= rows
        for boundary in due:
            boundary.progress.unflushed = False
            if not boundary.maybe:
                boundary.progress.flushed.add(boundary.segment)

    async def _store_quietly(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit, unless the group has moved on or nobody answers: whoever reads next begins further back then."""
        return await self._quietly(self._store(offsets))

    async def _quietly(self, commit: Coroutine[Any, Any, None]) -> bool:
        try:
            await commit
        except (ConnectionError, TimeoutError) as error:
            log.warning("not committed: %s", error)
            return False
        except KafkaError as error:
            if error.code not in MEMBERSHIP_LOST and not error.code.retriable:
                raise
            log.info("not committed: %s", error)
            return False
        return True

    async def _store(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not offsets:
            return
        # One after the other: the older of two commits must not arrive last.
        async with self._storing:
            await self.flush_audit()
            if self._session is not None:
                await self._session.commit(offsets)
            for partition, offset in offsets.items():
                progress = self._assignment.get(partition)
                if progress is not None:
                    progress.note_committed(offset)
                gate = self._gatekeeper.gate(partition.topic)
                if gate is not None:
                    gate.note_committed(partition.partition, offset)
