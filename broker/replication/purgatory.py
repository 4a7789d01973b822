"""The purgatory of a broker: delayed Produces, Fetches and DeleteRecords.

`delayed_operation` has the conditions; here they meet the event loop: one future per request, one timer for all
deadlines. No request has a task, and nothing polls. Source: the purgatories of Kafka's `ReplicaManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from anabranch.broker.replication.delayed_operation import DelayedOperation, DelayedOperations
from anabranch.broker.replication.partition import Partition, Role
from anabranch.broker.tasks.replication_future import ReplicationFuture
from anabranch.clients.timer import Timer
from anabranch.protocol.errors import ErrorCode


class DelayedProduce:
    """An appended batch that waits until every in-sync replica has it; `code` is None until then."""

    __slots__ = ("code", "partition", "required_offset", "term")

    def __init__(self, partition: Partition, required_offset: int) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.term = partition.terms
        self.code: ErrorCode | None = None

    def is_complete(self) -> bool:
        """Return whether the outcome is known; a bump of the own leader epoch does not end the wait.

        A broker that lost the leadership and has it again may have lost the batch.
        """
        if self.code is not None:
            return True
        partition = self.partition
        if partition.role is not Role.LEADER or partition.terms != self.term:
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.high_watermark < self.required_offset:
            return False
        elif len(partition.maximal_isr) < partition.effective_min_isr:
            self.code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        else:
            self.code = ErrorCode.NONE
        return True


class Purgatory:
    """All requests of this broker that wait for a change of a partition."""

    def __init__(self) -> None:
        self.produces: DelayedOperations[Partition] = DelayedOperations()
        """Appends with acks=all that wait for replication."""
        self.fetches: DelayedOperations[Partition] = DelayedOperations()
        """Fetches that wait for bytes."""
        self.deletions: DelayedOperations[Partition] = DelayedOperations()
        """DeleteRecords that wait until every live replica has deleted the records."""
        self._timer = Timer(self._expire)

    async def wait(
        self,
        operations: DelayedOperations[Partition],
        keys: Iterable[Partition],
        timeout_ms: float,
        ready: Callable[[Partition], bool],
        on_start: Callable[[DelayedOperation[Partition]], None] | None = None,
    ) -> None:
        """Wait until `ready(changed partition)` or the deadline.

        `on_start` is called with the delayed operation, which the caller may extend or finish.
        """
        released = asyncio.get_running_loop().create_future()
        parked = self._enter(operations, keys, timeout_ms, ready, released)
        if on_start is not None:
            on_start(parked)
        try:
            await released
        finally:
            operations.discard(parked)

    async def wait_replicated(
        self, waits: Sequence[DelayedProduce], timeout_ms: float, *, settling: bool = False
    ) -> None:
        """Wait until all are complete or the time is up; incomplete ones keep `code` None.

        The request awaits a `ReplicationFuture`, so the next requests of its connection may start.
        """
        unsettled = [wait for wait in waits if not wait.is_complete()]
        if not unsettled or timeout_ms <= 0:
            return
        loop = asyncio.get_running_loop()
        released = ReplicationFuture(loop=loop) if settling else loop.create_future()
        if len(unsettled) == 1:
            only = unsettled[0]
            parked = self._enter(self.produces, (only.partition,), timeout_ms, lambda _: only.is_complete(), released)
        else:
            waiting: dict[Partition, list[DelayedProduce]] = {}
            for wait in unsettled:
                waiting.setdefault(wait.partition, []).append(wait)

            def ready(changed: Partition) -> bool:
                left = [wait for wait in waiting.pop(changed, ()) if not wait.is_complete()]
                if left:
                    waiting[changed] = left
                return not waiting

            parked = self._enter(self.produces, tuple(waiting), timeout_ms, ready, released)
        try:
            await released
        finally:
            if not parked.done:
                self.produces.discard(parked)

    def _enter(
        self,
        room: DelayedOperations[Partition],
        keys: Iterable[Partition],
        timeout_ms: float,
        ready: Callable[[Partition], bool],
        released: asyncio.Future[None],
    ) -> DelayedOperation[Partition]:
        deadline = released.get_loop().time() + timeout_ms / 1000
        parked = room.add(keys, deadline, ready, partial(_release, released))
        self._timer.set_by(deadline)
        return parked

    def close(self) -> None:
        """Finish all waits: the broker is stopping."""
        for room in (self.produces, self.fetches, self.deletions):
            room.finish_all()
        self._timer.cancel()

    def _expire(self) -> None:
        # A timer may fire early by the clock's resolution: treat what is due within it as due.
        now = asyncio.get_running_loop().time() + 0.001
        rooms = (self.produces, self.fetches, self.deletions)
        for room in rooms:
            room.expire(now)
        if coming := [deadline for room in rooms if (deadline := room.next_deadline) is not None]:
            self._timer.set_by(min(coming))


def _release(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
