"""What a broker does for its replicas beside requests: shrink ISRs, write checkpoints, retain, flush, clean, move.

Small work comes back at intervals, long work in steps with as much time for requests in between. A disk that refuses is
an outage to report and to live through; anything else is a bug and ends the task, and with it the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.lasting import Died, lasting

if TYPE_CHECKING:
    from anabranch.broker.config import BrokerSettings
    from anabranch.broker.replication.isr_changes import IsrChanges
    from anabranch.broker.replication.log_moves import LogMoves
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.stragglers import Stragglers
    from anabranch.broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

INTERVAL_MS: Final = 1000
MOVE_INTERVAL_MS: Final = 100
"""How soon a move between directories begins; nodes with one directory have none."""


class Housekeeping:
    """The tasks, and what each does on its turn."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        partitions: Mapping[tuple[str, int], Partition],
        logs: LogManager,
        moves: LogMoves,
        isr_changes: IsrChanges,
        stragglers: Stragglers,
        *,
        broker_epoch: Callable[[], int],
        clock_ms: Callable[[], int],
        died: Died,
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

    def start(self) -> None:
        """Begin all of it."""
        self._loop = asyncio.get_running_loop()
        settings = self._settings()
        for interval_ms, work in (
            (settings.replica_lag_time_max_ms / 2, self.shrink_isrs),
            (settings.replica_high_watermark_checkpoint_interval_ms, self.checkpoint),
            (settings.log_retention_check_interval_ms, self.retain),
            (settings.producer_id_expiration_check_interval_ms, self.expire_producers),
            (INTERVAL_MS, self._logs.remove_deleted),
        ):
            self._begin(periodically(interval_ms, work), work.__name__)
        self._begin(in_steps(lambda: INTERVAL_MS, self.flush_step), "flushing")
        if len(self._logs.directories) > 1:
            self._begin(in_steps(lambda: MOVE_INTERVAL_MS, self._moves.step), "moving")
        if settings.log_cleaner_enable:
            clean = partial(self._logs.clean_step, self._high_watermarks)
            self._begin(in_steps(lambda: self._settings().log_cleaner_backoff_ms, clean), "cleaning")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(lasting(work, f"{name}-{self._settings().node_id}", self._died))

    async def stop(self) -> None:
        """End all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def flush_step(self) -> bool:
        """Flush a little; a leader that finds that its disk has failed asks for another one in its place."""
        more = self._logs.flush_step()
        for one in self._partitions.values():
            if one.log.durability.failure is not None:
                change = one.propose_resign(self._broker_epoch())
                if change is not None:
                    self._isr_changes.submit(one, change)
        return more

    def shrink_isrs(self) -> None:
        """Ask to drop every ISR member that has lagged for too long."""
        now = self._loop.time() * 1000
        for one, change in self._stragglers.changes(now, self._broker_epoch()):
            self._isr_changes.submit(one, change)

    def checkpoint(self) -> None:
        """Write every high watermark, so that a restart knows what was committed."""
        self._logs.checkpoint(self._high_watermarks())

    def _high_watermarks(self) -> Iterable[tuple[str, int, int]]:
        return ((one.topic, one.index, one.high_watermark) for one in self._partitions.values())

    def retain(self) -> None:
        """Delete what the topics' retention no longer covers; what is not committed yet stays.

        A log that fails does not keep the others from it: on a full disk it is they that make room.
        """
        now_ms = self._clock_ms()
        for one in self._partitions.values():
            try:
                deleted = one.log.apply_retention(now_ms, high_watermark=one.high_watermark)
            except OSError as error:
                log.error("%r: retention has to wait for its next turn: %s", one, error)
                continue
            if deleted:
                log.info("%r: %d segments expired, starts at %d", one, deleted, one.log.log_start_offset)

    def expire_producers(self) -> None:
        """Forget the producers of which nothing was heard for `producer.id.expiration.ms`."""
        now_ms = self._clock_ms()
        for one in self._partitions.values():
            one.log.expire_producers(now_ms)


async def periodically(interval_ms: float, work: Callable[[], None]) -> None:
    """Do it at intervals, for ever."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            work()
        except OSError as error:
            log.error("%s has to wait for its next turn: %s", work.__name__, error)


async def in_steps(interval_ms: Callable[[], float], step: Callable[[], bool]) -> None:
    """Do long work in steps, with as much time for requests between two of them, until there is none; then pause."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(interval_ms() / 1000)
        try:
            began = loop.time()
            while step():
                await asyncio.sleep(loop.time() - began)
                began = loop.time()
        except OSError as error:
            log.error("housekeeping has to wait for its next turn: %s", error)
