"""A whole cluster in one process and one event loop: for tests, demonstrations and `anabranch up`.

The nodes are real and talk over TCP. ZooKeeper and the disks are in memory, unless a data directory keeps them. A
broker is stopped in order (its leaderships move first), or crashed: other brokers notice only when its session ends.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.broker.node.app import Node
from anabranch.broker.node.start_settings import check_peers_resolve, warn_while_unreachable
from anabranch.clients.clock import time_of_day_clock
from anabranch.cluster.cluster_settings import ClusterSettings
from anabranch.cluster.in_process_data import InProcessData
from anabranch.cluster.running_nodes import RunningNodes
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.suggestion import suggest_arguments
from anabranch.runtime.startable import Startable

if TYPE_CHECKING:
    from anabranch.clients.security import Security
    from anabranch.faults.fault_actions import FaultActions
    from anabranch.faults.faults import Faults
    from anabranch.state.snapshot import Snapshot


@suggest_arguments
class Cluster(Startable):
    """A cluster in this process; an async context manager.

        async with Cluster(brokers=3) as cluster:
            producer = Producer(cluster.bootstrap_servers)
            await cluster.crash_broker(2)
            await cluster.start_broker(2)

    Args:
        brokers: The number of brokers. Ids count from 1, or from the property `broker.id`.
        host: The address of the listeners.
        advertised_host: The advertised host, if it differs, such as a container's name.
        advertised_port: The first broker's advertised port, if it differs, as behind a NAT; the others follow. Brokers
            then reach each other by a listener of their own, on this machine.
        port: The first broker's port; the others follow. 0 lets the system choose each.
        listeners: Several listeners instead of `host` and `port`, as of the first broker: `["SSL://127.0.0.1:9093"]`.
            `bootstrap_servers` are those of the first listener. Certificates and the like are `properties`.
        data_dir: The directory for logs and ZooKeeper's data, kept for the next start; None keeps them in memory.
        properties: Broker properties by their Kafka names, for all brokers.
        racks: The brokers' racks, assigned in turn.
        seed: Makes random choices, such as topic ids, repeatable; None for the system's random numbers.
        snapshot: The data that the cluster starts with.
        kafka: The compatibility profile: "4.1", or {1: "3.9", 2: "4.1"} in the middle of an upgrade; default 3.9.

    Raises:
        ConfigError: A property does not exist, has an impossible value, or is set by an argument here.
        DirectoryInUse: Another process works in `data_dir`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        host: str = "127.0.0.1",
        advertised_host: str = "",
        advertised_port: int = 0,
        port: int = 0,
        listeners: Sequence[str] = (),
        data_dir: str | Path | None = None,
        properties: Mapping[str, str] | None = None,
        racks: Sequence[str] = ("",),
        seed: int | None = None,
        snapshot: Snapshot | None = None,
        kafka: str | Mapping[int, str] = "",
    ) -> None:
        self._settings = ClusterSettings.of(
            brokers,
            host=host,
            advertised_host=advertised_host,
            advertised_port=advertised_port,
            port=port,
            listeners=listeners,
            data_dir=data_dir,
            properties=properties or {},
            racks=racks,
            kafka=kafka,
        )
        self._data = InProcessData(data_dir)
        if snapshot is not None:
            self._data.hold(snapshot, self.node_ids, every_broker=True)
        self._running = RunningNodes(self._create, self._bind)
        self.nodes = self._running.by_id
        self._on_anew: list[Callable[[], None]] = []
        self._faults: Faults | None = None
        self._fault_actions: FaultActions | None = None
        self._seed = seed
        self._rng = random.Random(seed)

    @property
    def zookeeper(self) -> MemoryZooKeeper:
        """The cluster's ZooKeeper; a reset or restore replaces it."""
        return self._data.zookeeper

    @zookeeper.setter
    def zookeeper(self, zookeeper: MemoryZooKeeper) -> None:
        self._data.zookeeper = zookeeper

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, running or not, as "HOST:PORT,HOST:PORT"."""
        return self._settings.bootstrap_servers

    def bootstrap_servers_of(self, listener: str) -> str:
        """The addresses of all brokers at one listener. KeyError if there is no such listener.

        Args:
            listener: The listener's name: of several, `bootstrap_servers` are those of the first.
        """
        return self._settings.bootstrap_servers_of(listener)

    @property
    def listeners(self) -> dict[str, str]:
        """Listener name -> the addresses of all brokers, as in `bootstrap_servers`."""
        return {one.name: self.bootstrap_servers_of(one.name) for one in self._settings.first.listening}

    @property
    def inter_broker_security(self) -> tuple[str, Security | None]:
        """The inter-broker addresses of all brokers, and the security settings of the running ones."""
        running = next(iter(self.nodes.values()), None)
        servers = self.bootstrap_servers_of(self._settings.first.between_brokers.name)
        return servers, None if running is None else running.settings.security

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all brokers, running or not."""
        return self._settings.node_ids

    def address(self, node_id: int) -> tuple[str, int]:
        """The advertised host and port of a broker, running or not. KeyError if no broker has this id."""
        return self._settings.address(node_id)

    def on_node(self, listener: Callable[[Node], None]) -> None:
        """Call `listener(node)` for every running node, and for each node that starts later."""
        self._running.on_node(listener)

    def shift_clock(self, node_id: int, offset_ms: int) -> None:
        """Set a broker's time of day ahead of the cluster's, or behind it; also after restarts."""
        self._running.shift_clock(node_id, offset_ms)

    def clock_offset_ms(self, node_id: int) -> int:
        """Return how far a broker's time of day is ahead of the cluster's."""
        return self._running.clock_offset_ms(node_id)

    def on_replaced(self, listener: Callable[[], None]) -> None:
        """Call `listener()` after each reset or restore: epochs may repeat from then on."""
        self._on_anew.append(listener)

    @property
    def faults(self) -> Faults:
        """The fault rules of the cluster; the code is loaded on first use."""
        if self._faults is None:
            from anabranch.faults.fault_actions import FaultActions
            from anabranch.faults.faults import Faults

            self._fault_actions = FaultActions(self)
            names = tuple(self.listeners)
            self._faults = Faults(self.node_ids, self._fault_actions, names, in_time=self._running.in_time)
            self.on_node(self._faults.watch)
        return self._faults

    def _on_step(self, node_id: int, step: str) -> None:
        if self._faults:
            self._faults.on_step(node_id, step)

    def _has_step_rules(self, node_id: int) -> bool:
        return self._faults is not None and self._faults.has_step_rules(node_id)

    @property
    def has_rules(self) -> bool:
        """Whether the cluster has fault rules."""
        return bool(self._faults)

    async def wait_failed(self) -> None:
        """Wait until a node fails by a bug, and raise its exception. Includes nodes that start later."""
        await self._running.wait_failed()

    async def start(self) -> None:
        """Start every broker, and wait until each knows all others. `async with` calls it.

        Raises:
            TimeoutError: A broker did not learn of the others within a minute.
            OSError: A port is taken, or the data directory cannot be written.
            ConfigError: Brokers cannot reach each other by the advertised host.
        """
        self._running.enter_clock()
        await check_peers_resolve(self._settings.first)
        starting = [node_id for node_id in self.node_ids if node_id not in self._data.down]
        for node_id in starting:
            await self._running.start(node_id)
        trials = [asyncio.create_task(warn_while_unreachable(self._settings[node_id])) for node_id in starting]
        try:
            await self._running.wait_for_metadata(len(starting))
        finally:
            for trial in trials:
                trial.cancel()
            await asyncio.gather(*trials, return_exceptions=True)

    async def stop(self) -> None:
        """Stop every broker at once, without moving leaderships, and remove all fault rules."""
        await self._stop_nodes()
        if self._faults is not None:
            self._faults.clear()
        self._data.close()
        self._running.leave_clock()

    async def _stop_nodes(self) -> None:
        if self._fault_actions is not None:
            await self._fault_actions.wait_settled()
        await self._running.stop_all()

    def check_in_memory(self) -> None:
        """Check that the data is in memory: it can be reset, restored and taken as a snapshot.

        Raises:
            NotInMemory: The cluster keeps its data in a directory.
        """
        self._data.check_in_memory()

    def snapshot(self, lead_ms: int = 0) -> Snapshot:
        """Take a snapshot of the cluster's data, for `restore` or a new cluster.

        Args:
            lead_ms: How far the cluster's time of day is ahead of the system's, in milliseconds.

        Raises:
            NotInMemory: The cluster keeps its data in a directory.
        """
        return self._data.snapshot(frozenset(self.nodes), lead_ms)

    async def restore(self, snapshot: Snapshot) -> None:
        """Replace all data by a snapshot's, on the same ports. To clients, every broker was killed.

        Raises:
            NotInMemory: The cluster keeps its data in a directory.
            InvalidSnapshot: The snapshot is of other brokers, its ZooKeeper data cannot be read, or a broker does not
                start with it. The cluster then keeps its previous data.
        """
        self.check_in_memory()
        from anabranch.state.snapshot import InvalidSnapshot

        replacement = InProcessData()
        replacement.hold(snapshot, self.node_ids)
        previous, running = self._data, frozenset(self.nodes)
        await self._stop_nodes()
        try:
            self._data = replacement
            await self._running.watch_start(self._start_again())  # the snapshot causes errors of these nodes
        except BaseException as error:
            await self._stop_nodes()
            self._data = previous
            self._data.down = frozenset(self.node_ids) - running
            await self._start_again()
            if not isinstance(error, Exception):
                raise
            raise InvalidSnapshot(
                f"brokers do not start with this snapshot; the previous state is restored: {error}"
            ) from error

    async def reset(self) -> None:
        """Return to the state after the start, on the same ports, without rules. To clients, every broker was killed.

        Raises:
            NotInMemory: The cluster keeps its data in a directory.
        """
        self.check_in_memory()
        if self._faults is not None:
            self._faults.clear()
        await self._stop_nodes()
        self._data.clear()
        self._rng = random.Random(self._seed)
        self._settings.reset()
        await self._start_again()

    async def _start_again(self) -> None:
        for listener in self._on_anew:
            listener()
        await self.start()

    def fork(self, snapshot: Snapshot) -> Cluster:
        """Return a new cluster, not yet started, with a snapshot's data and free ports."""
        twin = Cluster(len(self.node_ids))
        twin._settings = self._settings.elsewhere()
        twin._data.hold(snapshot, self.node_ids, every_broker=True)
        return twin

    async def start_broker(self, node_id: int, properties: Mapping[str, str] | None = None) -> None:
        """Start a stopped broker again, on its old port and with its old data, and wait until all brokers know it.

        Args:
            node_id: The broker's id.
            properties: Broker properties that change for this broker from now on.

        Raises:
            ConfigError: A property does not exist, or has an impossible value.
            KeyError: The cluster has no broker of this id.
            TimeoutError: Another broker did not learn of it within a minute.
        """
        if properties:
            self._settings.change(node_id, properties)
        await self._running.restart(node_id)
        await self._running.wait_for_metadata(len(self.nodes))

    async def stop_broker(self, node_id: int) -> None:
        """Stop a broker in order: its leaderships move to other brokers first.

        Args:
            node_id: The broker's id.

        Raises:
            KeyError: No such broker is running.
        """
        await self._running.stop(node_id)

    async def crash_broker(self, node_id: int) -> None:
        """Stop a broker without notice; the other brokers notice when its ZooKeeper session ends.

        Args:
            node_id: The broker's id.

        Raises:
            KeyError: No such broker is running.
        """
        await self._running.crash(node_id, self.zookeeper)

    def freeze_broker(self, node_id: int) -> None:
        """Stop a broker at once, as SIGSTOP does: its connections stay open, and no response comes.

        Its ZooKeeper session expires if the freeze lasts.

        Args:
            node_id: The broker's id.

        Raises:
            KeyError: No such broker is running.
            CannotFreeze: The loop cannot freeze brokers.
        """
        self._running.freeze(node_id)

    def thaw_broker(self, node_id: int) -> None:
        """Resume a frozen broker; no effect if it is not frozen.

        Args:
            node_id: The broker's id.

        Raises:
            KeyError: No such broker is running.
        """
        self._running.thaw(node_id)

    def stop_abruptly(self, node_id: int) -> None:
        """Freeze a broker that is about to crash, if the loop can do that."""
        self._running.freeze_if_possible(node_id)

    @property
    def can_freeze(self) -> bool:
        """Whether the cluster's brokers can be frozen: it has a clock, or has not started."""
        return self._running.can_freeze

    def is_frozen(self, node_id: int) -> bool:
        """Whether a broker is running and frozen."""
        return self._running.is_frozen(node_id)

    def _create(self, node_id: int) -> Node:
        settings = self._settings[node_id]
        return Node(
            settings,
            connect=lambda: self.zookeeper.connect(settings.zookeeper_session_timeout_ms),
            files=self._data.files_of(settings),
            rng=random.Random(self._rng.getrandbits(64)),
            clock_ms=time_of_day_clock(),
            failpoint=functools.partial(self._on_step, node_id),
            in_turn=functools.partial(self._has_step_rules, node_id),
        )

    def _bind(self, node_id: int, node: Node) -> None:
        self._settings.bind(node_id, node.server.ports)
