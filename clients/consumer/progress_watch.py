"""Long polls at the coordinator for committed offsets that gates wait for, and for rebalances.

A broker processes one request per connection. Offsets that are needed while a poll is parked therefore go into another
poll, over another connection, which includes all awaited offsets. One poll is always parked, even without awaited
offsets, so that a member learns of a rebalance at once. Heartbeats would take up to their interval, and the other
members would wait that long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.network import POSITION_CHANNELS
from anabranch.clients.timer import Timer
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

PROGRESS_WAIT_MS: Final = 1000
IDLE_WAIT_MS: Final = 5000
RETRY_BACKOFF_S: Final = 0.05


class ProgressWatch:
    """The polls of one member. `awaited` returns the awaited offsets, None if the group need not be watched."""

    def __init__(
        self,
        session: ClassicGroupSession,
        awaited: Callable[[], Mapping[TopicPartition, int] | None],
        on_progress: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        self._session = session
        self._awaited = awaited
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._polls: dict[int, tuple[Mapping[TopicPartition, int], asyncio.Task[float]]] = {}
        self._soon = Timer(self._start_poll)
        self._closed = False
        self.failure: BaseException | None = None
        """A bug that ended the polls."""

    async def close(self) -> None:
        """Stop the polls."""
        self._closed = True
        self._soon.cancel()
        tasks = [task for _, task in self._polls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def refresh(self, after_s: float = 0) -> None:
        """Poll for newly awaited offsets or after a rebalance, soon or after a delay."""
        if not self._closed:
            self._soon.set_by(self._loop.time() + after_s)

    def _start_poll(self) -> None:
        awaited = self._awaited() if self._session.membership.stable and self.failure is None else None
        if awaited is None or (self._polls and self._is_covered(awaited)):
            return
        channel = next((one for one in POSITION_CHANNELS if one not in self._polls), None)
        if channel is None:
            return  # the first poll that returns includes everything
        task = self._loop.create_task(self._poll(channel, awaited), name="gates: positions")
        self._polls[channel] = awaited, task
        task.add_done_callback(lambda task: self._on_done(channel, task))

    def _is_covered(self, awaited: Mapping[TopicPartition, int]) -> bool:
        """Whether polls in flight return when any of these offsets is reached."""
        return all(
            any(offset >= polled.get(partition, offset + 1) for polled, _ in self._polls.values())
            for partition, offset in awaited.items()
        )

    async def _poll(self, channel: int, awaited: Mapping[TopicPartition, int]) -> float:
        """Poll once; return the delay before the next poll."""
        wait_ms = PROGRESS_WAIT_MS if awaited else IDLE_WAIT_MS
        started_s = self._loop.time()
        try:
            positions = await self._session.await_positions(awaited, max_wait_ms=wait_ms, channel=channel)
        except (ConnectionError, TimeoutError, KafkaError) as error:
            log.debug("progress of the group: %s", error)
            return RETRY_BACKOFF_S
        self._on_progress(positions)
        if any(positions.get(partition, offset - 1) >= offset for partition, offset in awaited.items()):
            return 0
        # Limit the rate if a coordinator does not hold polls back.
        left_s = started_s + wait_ms / 1000 - self._loop.time()
        return RETRY_BACKOFF_S if awaited and left_s > 0 else max(left_s, 0)

    def _on_done(self, channel: int, task: asyncio.Task[float]) -> None:
        del self._polls[channel]
        if task.cancelled():
            return
        self.failure = task.exception()
        if self.failure is None:
            self.refresh(task.result())
        else:
            self._on_progress({})
