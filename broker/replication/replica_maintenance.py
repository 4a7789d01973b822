"""Periodic work on the replicas of a broker: ISR shrinks, checkpoints, retention, flushes, compaction, moves.

All work runs in steps, with as much time for requests in between. A disk error is logged and retried; any other
exception is a bug that ends the task, and with it the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.replication.changed_partitions import ChangedPartitions
from anabranch.broker.tasks.supervised_task import OnFailure, supervised_task

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.replication.isr_changes import IsrChanges
    from anabranch.broker.replication.lagging_replicas import LaggingReplicas
    from anabranch.broker.replication.log_moves import LogMoves
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

INTERVAL_MS: Final = 1000
STEP: Final = 100
"""Partitions per step, of some microseconds each."""
MOVE_INTERVAL_MS: Final = 100
"""The delay until a move between directories starts; nodes with one directory have no moves."""


class ReplicaMaintenance:
    """The maintenance tasks of one broker."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        partitions: Mapping[tuple[str, int], Partition],
        logs: LogManager,
        moves: LogMoves,
        isr_changes: IsrChanges,
        stragglers: LaggingReplicas,
        *,
        broker_epoch: Callable[[], int],
        clock_ms: Callable[[], int],
        died: OnFailure,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._logs = logs
        self._moves = moves
        self._isr_changes = isr_changes
        self._stragglers = stragglers
        self._broker_epoch = broker_epoch
        self._clock_ms = clock_ms
        self._died = died
        self._tasks: list[asyncio.Task[None]] = []
        self.changed = ChangedPartitions()
        """Partitions whose high watermark and failures have to be checked."""
        self._unsaved: dict[Partition, None] = {}
        self._failed: dict[Partition, None] = {}
        self._retaining: list[Partition] = []
        self._expiring: list[Partition] = []

    def start(self) -> None:
        """Start all tasks."""
        self._loop = asyncio.get_running_loop()
        settings = self._settings()
        for interval_ms, work in (
            (settings.replica_lag_time_max_ms / 2, self.shrink_isrs),
            (settings.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_steps),
            (INTERVAL_MS, self._logs.remove_deleted),
        ):
            self._begin(periodically(interval_ms, work), work.__name__)
        retaining_ms, expiring_ms = (
            settings.log_retention_check_interval_ms,
            settings.producer_id_expiration_check_interval_ms,
        )
        self._begin(in_steps(lambda: retaining_ms, self.retain), "retain")
        self._begin(in_steps(lambda: expiring_ms, self.expire_producers), "expire_producers")
        self._begin(in_steps(lambda: INTERVAL_MS, self.flush_step), "flushing")
        if len(self._logs.directories) > 1:
            self._begin(in_steps(lambda: MOVE_INTERVAL_MS, self._moves.step), "moving")
        if settings.log_cleaner_enable:
            clean = partial(self._logs.clean_step, self._high_watermark)
            self._begin(in_steps(lambda: self._settings().log_cleaner_backoff_ms, clean), "cleaning")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(supervised_task(work, f"{name}-{self._settings().node_id}", self._died))

    async def stop(self) -> None:
        """Stop all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def remove(self, partition: Partition) -> None:
        """Remove a partition that this broker no longer hosts."""
        self.changed.remove(partition)
        self._unsaved.pop(partition, None)
        self._failed.pop(partition, None)

    def flush_step(self) -> bool:
        """Flush one step; a leader whose disk has failed requests another leader."""
        more = self._logs.flush_step()
        changed = self.changed.take(STEP)
        self._note_changes(changed)
        for one in self._failed:
            change = one.propose_resign(self._broker_epoch())
            if change is not None:
                self._isr_changes.submit(one, change)
        return more or len(changed) == STEP

    def _note_changes(self, changed: list[Partition]) -> None:
        for one in changed:
            self._unsaved[one] = None
            if one.log.durability.failure is not None:
                self._failed[one] = None

    def shrink_isrs(self) -> Iterator[None]:
        """Propose to remove every ISR member that has lagged for too long; yield after some partitions."""
        for found in self._stragglers.changes(lambda: self._loop.time() * 1000, self._broker_epoch):
            if found is None:
                yield
            else:
                self._isr_changes.submit(*found)

    def checkpoint(self) -> None:
        """Write every high watermark that moved, for the next start, without a pause."""
        for changed in self.changed.take_all(STEP):
            self._note_changes(changed)
        self._logs.checkpoint((one.topic, one.index, one.high_watermark) for one in self._unsaved)
        self._unsaved.clear()

    def checkpoint_steps(self) -> Iterator[None]:
        """Write every high watermark that moved, for the next start; yield after some partitions, and each file."""
        for changed in self.changed.take_all(STEP):
            self._note_changes(changed)
            if len(changed) == STEP:
                yield
        for visited, one in enumerate(list(self._unsaved), 1):
            if one in self._unsaved:  # else it was removed during a yield
                del self._unsaved[one]
                self._logs.put_high_watermark(one.topic, one.index, one.high_watermark)
            if visited % STEP == 0:
                yield
        yield from self._logs.checkpoint_steps()

    def _high_watermark(self, key: tuple[str, int]) -> int:
        known = self._partitions.get(key)
        return 0 if known is None else known.high_watermark

    def retain(self) -> bool:
        """Delete expired segments of some partitions; return whether there are more partitions.

        Uncommitted records stay. The failure of one log does not stop the others: on a full disk they free space.
        """
        now_ms = self._clock_ms()
        for one in self._some(self._retaining):
            try:
                deleted = one.log.apply_retention(now_ms, high_watermark=one.high_watermark)
            except OSError as error:
                log.error("%r: retention failed, retrying at the next run: %s", one, error)
                continue
            if deleted:
                log.info("%r: %d segments expired, starts at %d", one, deleted, one.log.log_start_offset)
        return bool(self._retaining)

    def expire_producers(self) -> bool:
        """Remove producers idle for `producer.id.expiration.ms`, in some partitions."""
        now_ms = self._clock_ms()
        for one in self._some(self._expiring):
            one.log.expire_producers(now_ms)
        return bool(self._expiring)

    def _some(self, left: list[Partition]) -> list[Partition]:
        """Return the next remaining partitions; when none remain, begin again with all."""
        if not left:
            left += self._partitions.values()
        some = left[-STEP:]
        del left[-STEP:]
        return [one for one in some if self._partitions.get((one.topic, one.index)) is one]


async def periodically(interval_ms: float, work: Callable[[], Iterator[None]]) -> None:
    """Run `work` at intervals, forever; at each yield, requests have as much time as it took."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            began = loop.time()
            for _ in work():
                await asyncio.sleep(loop.time() - began)
                began = loop.time()
        except OSError as error:
            log.error("%s failed, retrying at the next run: %s", work.__name__, error)


async def in_steps(interval_ms: Callable[[], float], step: Callable[[], bool]) -> None:
    """Run long work in steps, with as much time for requests in between, until it is done; then pause."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(interval_ms() / 1000)
        try:
            began = loop.time()
            while step():
                await asyncio.sleep(loop.time() - began)
                began = loop.time()
        except OSError as error:
            log.error("maintenance failed, retrying at the next run: %s", error)
