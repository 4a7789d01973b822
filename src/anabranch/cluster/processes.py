"""A cluster of real processes and their ZooKeeper: `anabranch up --processes`, demonstration and fault tests.

Each node runs `anabranch node` in its own process. `kill` is SIGKILL: nothing is flushed, and no other node is
notified. A node keeps its port and data directory over restarts; its log goes to a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.broker.authentication.listener_security import inter_broker_security
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.coordinator_properties import INTERNAL_REPLICATION
from anabranch.broker.config.listeners import Listener
from anabranch.broker.node.start_settings import start_settings
from anabranch.broker.profiles.profile_choice import oldest
from anabranch.clients.connection import Connection
from anabranch.clients.directory_lock import DirectoryLock
from anabranch.cluster.built_in_zookeeper import BuiltInZooKeeper
from anabranch.cluster.interrupted_restore import finish_restore
from anabranch.cluster.launched_agent import LOOPBACK, AgentOptions, LaunchedAgent
from anabranch.cluster.local_zookeeper import LocalZooKeeper
from anabranch.cluster.node_process import COMMAND_MODULE, NodeFailed, NodeProcess
from anabranch.cluster.zookeeper import ZooKeeperProcess
from anabranch.cluster.zookeeper_links import ZooKeeperLinks
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.host_port import format_host_port
from anabranch.runtime.sockets import free_ports
from anabranch.runtime.stall_detection import STALL_TIMEOUT_S, Stalled, wait_while_progressing
from anabranch.runtime.startable import Startable
from anabranch.state.data_directory import BUILT_IN, LOCAL, ZOOKEEPER, refuse_other_zookeeper

if TYPE_CHECKING:
    from anabranch.clients.security import Security

log: Final = logging.getLogger(__name__)

POLL_BROKERS_S: Final = 0.05
FIRST_CONTROLLER_ID: Final = 100
LIMITED: Final = "internal.topics.limited.to.live.brokers"
SMALL_CLUSTER: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.num.partitions": "8",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
}


class ProcessCluster(Startable):
    """A cluster of node processes; an async context manager.

    Brokers are numbered from `first_id` on, spare controllers, which hold no data, from 100 on. The spare controllers
    start first, so one of them is the active controller until it fails.

    Args:
        brokers: The number of brokers.
        controllers: The number of spare controllers.
        zookeeper: "built-in" starts the built-in ZooKeeper, "local" a real one; HOST:PORT uses a running ensemble.
        host: The address of the listeners.
        port: The first node's port; the others follow. 0 takes free ports.
        listeners: Several listeners instead of `host` and `port`, as of the first node: `["SSL://127.0.0.1:9093"]`.
        directory: The directory for data and logs; None for a temporary directory.
        properties: Broker properties by their Kafka names, for all nodes.
        first_start: Node id -> properties for its first start only, such as the step of a planned crash.
        log_level: The level of the nodes' log files.
        metrics_port: The first node's metrics port; None for no metrics.
        first_id: The first broker's id.
        kafka: Node id -> compatibility profile; default 3.9.
        agents: The options of the nodes' control agents; None for no agents.
        module: What nodes run: a test may change the product there.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        controllers: int = 0,
        zookeeper: str = BUILT_IN,
        host: str = "127.0.0.1",
        port: int = 0,
        listeners: Sequence[str] = (),
        directory: str | Path | None = None,
        properties: Mapping[str, str] | None = None,
        first_start: Mapping[int, Mapping[str, str]] | None = None,
        log_level: str = "info",
        metrics_port: int | None = None,
        first_id: int = 1,
        kafka: Mapping[int, str] | None = None,
        agents: AgentOptions | None = None,
        module: str = COMMAND_MODULE,
    ) -> None:
        self._first_start = first_start or {}
        """Node id -> properties for its first start only, such as a planned crash."""
        replicas = str(min(3, brokers))
        self._properties = {
            **SMALL_CLUSTER,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, brokers)),
            LIMITED: str(INTERNAL_REPLICATION.isdisjoint(properties or {})).lower(),
            **(properties or {}),
        }
        self._kafka = kafka or {}
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="anabranch-")
        self.directory = Path(self._temporary.name if self._temporary is not None else directory or "")
        self.nodes: dict[int, NodeProcess] = {}
        first_spare = max(FIRST_CONTROLLER_ID, first_id + brokers)
        self._roles = dict.fromkeys(range(first_id, first_id + brokers), "broker,controller")
        self._roles |= dict.fromkeys(range(first_spare, first_spare + controllers), "controller")
        self._host = host
        self._port = port
        self._listening: tuple[Listener, ...] = ()
        self._between = ""
        self.security: Security | None = None
        """The launcher's credentials at the inter-broker listener."""
        if listeners:
            settings = start_settings(BrokerSettings(), {**self._properties, "listeners": ",".join(listeners)})
            self._listening, self._between = settings.listening, settings.between_brokers.name
            self.security = inter_broker_security(settings)
        self._log_level = log_level
        self._metrics_port = metrics_port
        self._agents = agents
        self._module = module
        self._zookeeper = zookeeper
        self._server: ZooKeeperProcess | None = None
        self.zookeeper_links: ZooKeeperLinks | None = None
        """The nodes' links to ZooKeeper, if the nodes have agents."""
        self._lock: DirectoryLock | None = None
        self._zookeeper_runs = asyncio.Event()
        self._zookeeper_runs.set()

    @property
    def brokers(self) -> list[NodeProcess]:
        """The nodes that hold data."""
        return [node for node in self.nodes.values() if "broker" in node.roles]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers as "HOST:PORT,HOST:PORT"."""
        return ",".join(node.address for node in self.brokers)

    @property
    def zookeeper(self) -> str:
        """The ensemble's connect string."""
        return self._zookeeper if self._server is None else self._server.hosts

    async def start(self) -> None:
        """Start ZooKeeper, unless it is an ensemble, and all nodes, and wait until every broker knows every other.

        Raises:
            ConfigError: The directory has the data of another kind of ZooKeeper.
            DirectoryInUse: Another process runs in the directory.
            NodeFailed: A node ended, or made no progress; the message has its last log lines.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = DirectoryLock(self.directory)
        finish_restore(self.directory)
        if self._zookeeper in (BUILT_IN, LOCAL):
            data_dir = None if self._temporary else self.directory / ZOOKEEPER
            if data_dir is not None:
                refuse_other_zookeeper(data_dir, built_in=self._zookeeper == BUILT_IN)
            kind = BuiltInZooKeeper if self._zookeeper == BUILT_IN else LocalZooKeeper
            self._server = kind(data_dir=data_dir)
            await self._server.__aenter__()
        if self._agents is not None:
            self.zookeeper_links = ZooKeeperLinks(self.zookeeper)
        ports = iter(free_ports(self._host, len(self._roles) * max(len(self._listening), 1)))
        agent_ports = iter([] if self._agents is None else free_ports(LOOPBACK, len(self._roles)))
        for place, (node_id, roles) in enumerate(self._roles.items()):
            listeners = tuple(
                dataclasses.replace(one, port=one.port + place if one.port else next(ports)) for one in self._listening
            )
            first = listeners[0] if listeners else None
            self.nodes[node_id] = NodeProcess(
                node_id=node_id,
                roles=roles,
                host=self._host if first is None else first.host,
                port=first.port if first is not None else self._port + place if self._port else next(ports),
                listeners=listeners,
                directory=self.directory,
                zookeeper=await links.open(node_id) if (links := self.zookeeper_links) else self.zookeeper,
                properties=self._properties_of(node_id),
                log_level=self._log_level,
                metrics_port=None if self._metrics_port is None else self._metrics_port + place,
                module=self._module,
                agent=None if self._agents is None else LaunchedAgent.new(next(agent_ports), self._agents),
            )
        # Spare controllers start first: one becomes the active controller, and can be killed without loss of data.
        for spares in (True, False):
            group = [node for node in self.nodes.values() if ("broker" not in node.roles) == spares]
            for node in group:
                await node.start(extra=self._first_start.get(node.node_id))
            for node in group:
                await node.wait_ready()
        await self.wait_brokers(len(self.brokers))

    def _properties_of(self, node_id: int) -> Mapping[str, str]:
        version = self._kafka.get(node_id)
        return (
            self._properties
            if version is None
            else {
                **self._properties,
                "kafka.version": version,
                "kafka.release": oldest(self._kafka.values()),
            }
        )

    async def zookeeper_ended(self) -> None:
        """Wait until this cluster's own ZooKeeper ends by itself, and raise its error; without one, wait for ever."""
        if self._server is None:
            await asyncio.get_running_loop().create_future()
            return
        while True:
            await self._zookeeper_runs.wait()
            await self._server.wait_ended()  # returns if it was stopped on purpose

    @contextlib.asynccontextmanager
    async def without_zookeeper(self) -> AsyncIterator[None]:
        """A block during which this cluster's own ZooKeeper is stopped; its port and data remain."""
        assert self._server is not None, "this cluster has started a ZooKeeper"
        self._zookeeper_runs.clear()
        await self._server.kill()
        try:
            yield
        finally:
            await self._server.start()
            self._zookeeper_runs.set()

    @property
    def server(self) -> ZooKeeperProcess | None:
        """The ZooKeeper that this cluster has started, if any."""
        return self._server

    async def stop(self) -> None:
        """Stop all nodes, then ZooKeeper."""
        # All at once: with every broker stopping, leaderships have nowhere to move.
        await asyncio.gather(*(node.kill() for node in self.nodes.values()))
        if self.zookeeper_links is not None:
            await self.zookeeper_links.close()
        if self._server is not None:
            server, self._server = self._server, None
            await server.__aexit__(None, None, None)
        if self._lock is not None:
            self._lock.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    async def kill(self, node_id: int) -> None:
        """SIGKILL a node."""
        await self.nodes[node_id].kill()

    async def restart(self, node_id: int) -> None:
        """Start a node that was stopped or killed, and wait until it is ready."""
        node = self.nodes[node_id]
        await node.start()
        await node.wait_ready()

    async def wait_brokers(self, count: int) -> None:
        """Wait until every running broker's metadata shows `count` live brokers. Raises NodeFailed."""
        await wait_for_live_brokers(
            self.brokers,
            count,
            lambda node: known_brokers(*self.inter_broker_address(node), self.security),
        )

    @property
    def inter_broker_servers(self) -> str:
        """The addresses at which other nodes reach the brokers."""
        return ",".join(format_host_port(*self.inter_broker_address(one)) for one in self.brokers)

    def inter_broker_address(self, node: NodeProcess) -> tuple[str, int]:
        """The address at which other nodes and the launcher reach a node."""
        return next(
            ((one.host, one.port) for one in node.listeners if one.name == self._between), (node.host, node.port)
        )


async def wait_for_live_brokers(
    nodes: Sequence[NodeProcess],
    count: int,
    known: Callable[[NodeProcess], Awaitable[int]],
    *,
    stall_timeout_s: float = STALL_TIMEOUT_S,
) -> None:
    """Wait until every running broker knows `count` live brokers; `known` returns one broker's number.

    Raises NodeFailed if fewer than `count` run, or if the numbers do not change for `stall_timeout_s`.
    """
    numbers: dict[int, int] = {}

    async def converge() -> None:
        for node in nodes:
            while numbers.get(node.node_id) != count and node.running:
                _must_run(nodes, count)
                numbers[node.node_id] = await known(node)
                await asyncio.sleep(POLL_BROKERS_S)  # other processes cannot set an event here

    try:
        await wait_while_progressing(converge(), numbers.copy, stall_timeout_s=stall_timeout_s)
    except Stalled as error:
        raise NodeFailed(f"not every broker sees {count} brokers: {error}; seen by node: {numbers}") from None


def _must_run(nodes: Sequence[NodeProcess], count: int) -> None:
    if sum(node.running for node in nodes) < count:
        ended = [f"node {node.node_id} ended\n{node.log_tail()}" for node in nodes if not node.running]
        raise NodeFailed("\n".join(ended))


async def known_brokers(host: str, port: int, security: Security | None = None) -> int:
    """The number of live brokers that a broker knows; -1 if it does not respond."""
    try:
        connection = await Connection.open(host, port, client_id="anabranch-launcher", security=security)
        try:
            response = await connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        finally:
            await connection.close()
    except (ConnectionError, TimeoutError):
        return -1
    return len(response.brokers)
