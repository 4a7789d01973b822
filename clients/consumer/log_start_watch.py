"""Queries the log start offsets of partitions whose fetched records wait behind a closed gate.

A Fetch response carries the log start offset. A partition whose buffer is full is not fetched, so its leader is asked
by ListOffsets every few seconds. The core skips fetched records that are deleted by then (`Deliveries.skip_deleted`),
because gates of other members may wait for the group to pass them. Source: rules R10, R11.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.offset_lookup import EARLIEST, READ_UNCOMMITTED, find_offsets
from anabranch.clients.network import Network
from anabranch.clients.timer import Timer
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

INTERVAL_S: Final = 5.0
ROUND_S: Final = 5.0
"""How long a round lasts at most: a partition without a leader does not delay the next one."""


class LogStartWatch:
    """Queries the log starts of one consumer's stalled partitions, one round of requests at a time."""

    def __init__(self, network: Network, core: ConsumerCore, wakeup: asyncio.Event) -> None:
        self._network = network
        self._core = core
        self._wakeup = wakeup
        self._timer = Timer(self._begin)
        self._task: asyncio.Task[None] | None = None

    def schedule(self) -> None:
        """Schedule a query for partitions that are stalled by then."""
        if self._task is None:
            self._timer.set_by(asyncio.get_running_loop().time() + INTERVAL_S)

    async def close(self) -> None:
        """Stop the queries."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> None:
        if self._core.deliveries.stalled_partitions():
            self._task = asyncio.get_running_loop().create_task(self._ask(), name="gates: log starts")

    async def _ask(self) -> None:
        try:
            await asyncio.gather(*map(self._ask_for, self._core.deliveries.stalled_partitions()))
        finally:
            self._task = None
            self._wakeup.set()  # also without news: the next round is scheduled then

    async def _ask_for(self, partition: TopicPartition) -> None:
        """Ask for one log start: another partition may have no leader, or may have been removed."""
        try:
            async with asyncio.timeout(ROUND_S):
                found = (await find_offsets(self._network, {partition: EARLIEST}, READ_UNCOMMITTED))[partition]
        except (ConnectionError, TimeoutError, KafkaError) as error:
            log.debug("log start behind a closed gate: %s", error)
            return
        if found is not None:
            self._core.note_log_start(partition, found.offset)
            self._wakeup.set()
