"""The running nodes of a cluster in one process: how they start and stop, their clock, and their failures.

A node starts on the clock of its cluster, wherever the caller is, and listeners see each new one. Its successor waits
until it has closed its ports and logs. Of a node's errors only those count that come while it runs: a killed one may
fail at anything. `in_process` decides which nodes run, and what data they have.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anabranch.clock.cluster_clock import CLOCK
from anabranch.cluster.broker_processes import BrokerProcesses

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage
    from anabranch.broker.node.app import Node
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.controller.zk.memory import MemoryZooKeeper

T = TypeVar("T")

READY_TIMEOUT_MS: Final = 60000


class RunningNodes:
    """The running nodes of one cluster, by id."""

    def __init__(self, create: Callable[[int], Node], on_started: Callable[[int, Node], None]) -> None:
        """`create` creates a node; `on_started` is called after the listeners."""
        self._create = create
        self._on_started = on_started
        self.by_id: dict[int, Node] = {}
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held while a node starts or stops: a new one waits until its predecessor has closed ports and logs."""
        self._processes = BrokerProcesses()
        self._listeners: list[Callable[[Node], None]] = []
        self._clock: ClusterClock | None = None
        """The clock on which the cluster was started: nodes that start later have it, too."""
        self._clock_offsets_ms: dict[int, int] = {}
        self._failure: asyncio.Future[None] | None = None

    def on_node(self, listener: Callable[[Node], None]) -> None:
        """Call `listener(node)` for every running node, and for each node that starts later."""
        self._listeners.append(listener)
        for node in self.by_id.values():
            listener(node)

    # clocks

    def enter_clock(self) -> None:
        """Start nodes on the caller's clock from now on, if it has one."""
        self._clock = CLOCK.get() or self._clock

    def leave_clock(self) -> None:
        """Start nodes on no clock, unless `enter_clock` finds one."""
        self._clock = None

    def in_time(self, work: Callable[[], T]) -> T:
        """Call a function on the clock of the cluster, if it has one, wherever the caller is."""
        return work() if self._clock is None else self._clock.context.copy().run(work)

    def shift_clock(self, node_id: int, offset_ms: int) -> None:
        """Set a node's time of day ahead of the cluster's, or behind it; also after restarts."""
        self._clock_offsets_ms[node_id] = offset_ms
        if node_id in self.by_id:
            self.by_id[node_id].clock.offset_ms = offset_ms

    def clock_offset_ms(self, node_id: int) -> int:
        """Return how far a node's time of day is ahead of the cluster's."""
        return self._clock_offsets_ms.get(node_id, 0)

    # starts and stops

    async def start(self, node_id: int) -> None:
        """Start a node."""
        if self._clock is not None and CLOCK.get() is not self._clock:
            await self._clock.run(self.start(node_id))
            return
        node = self._create(node_id)
        node.clock.offset_ms = self.clock_offset_ms(node_id)
        await self._processes.start(node)
        self.by_id[node_id] = node
        if self._failure is not None:
            node.failed.add_done_callback(self._node_failed)
        for listener in self._listeners:
            listener(node)
        self._on_started(node_id, node)

    async def restart(self, node_id: int) -> None:
        """Start a node again, once its predecessor has stopped."""
        async with self._turns[node_id]:
            await self.start(node_id)

    async def wait_for_metadata(self, count: int) -> None:
        """Wait until every node knows this many live brokers, and all topics. Raises TimeoutError after a minute."""

        def has_topics(image: ClusterImage) -> bool:
            return image.complete and len(image.brokers) >= count

        for node in self.by_id.values():
            known = await node.services.metadata.wait_until(has_topics, READY_TIMEOUT_MS)
            if not known:
                seen = sorted(node.services.metadata.image.brokers)
                raise TimeoutError(f"broker {node.settings.node_id} sees only the brokers {seen}, not {count}")

    async def stop(self, node_id: int) -> None:
        """Stop a node in order: its leaderships move to others first. KeyError if it does not run."""
        self.thaw(node_id)
        node = self.by_id.pop(node_id)
        self._processes.forget(node)
        async with self._turns[node_id]:
            await node.stop()

    async def crash(self, node_id: int, zookeeper: MemoryZooKeeper) -> None:
        """Stop a node without notice, and end its session. KeyError if it does not run."""
        node = self.by_id.pop(node_id)
        self._processes.kill(node, zookeeper)
        async with self._turns[node_id]:
            await node.stop(controlled=False)

    async def stop_all(self) -> None:
        """Stop every node at once, without moving leaderships."""
        for node_id in self.by_id:
            self.thaw(node_id)
        await asyncio.gather(*(node.stop(controlled=False) for node in self.by_id.values()))
        self._processes.forget(*self.by_id.values())
        self.by_id.clear()

    # freezes

    @property
    def can_freeze(self) -> bool:
        """Whether nodes can be frozen: the cluster has a clock, or has not started."""
        return bool(self._processes) or not self.by_id

    def is_frozen(self, node_id: int) -> bool:
        """Whether a node is running and frozen."""
        return node_id in self.by_id and self._processes.is_frozen(self.by_id[node_id])

    def freeze(self, node_id: int) -> None:
        """Stop a node at once, as SIGSTOP does. KeyError if it does not run; CannotFreeze."""
        self._processes.freeze(self.by_id[node_id])

    def thaw(self, node_id: int) -> None:
        """Resume a frozen node; no effect if it is not frozen. KeyError if it does not run."""
        self._processes.thaw(self.by_id[node_id])

    def freeze_if_possible(self, node_id: int) -> None:
        """Freeze a node, if it runs and the loop can do that."""
        if self.by_id.get(node_id) in self._processes:
            self.freeze(node_id)

    # failures

    async def wait_failed(self) -> None:
        """Wait until a node fails by a bug, and raise its exception. Includes nodes that start later."""
        self._failure = asyncio.get_running_loop().create_future()
        for node in self.by_id.values():
            node.failed.add_done_callback(self._node_failed)
        await self._failure

    def _node_failed(self, failed: asyncio.Future[None]) -> None:
        if all(node.failed is not failed for node in self.by_id.values()):
            return  # a killed node: its later errors are no bugs
        error = None if failed.cancelled() else failed.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def watch_start(self, start: Coroutine[Any, Any, None]) -> None:
        """Run a start of nodes until one of them fails, and raise its exception; `wait_failed` does not see it."""
        outer, self._failure = self._failure, asyncio.get_running_loop().create_future()
        starting = asyncio.create_task(start)
        try:
            await asyncio.wait((starting, self._failure), return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                await self._failure
            await starting
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            self._failure = outer
