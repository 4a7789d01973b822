"""A cluster of real processes whose links can all be cut: brokers, spare controllers, three ZooKeeper servers.

Every node advertises a port of the proxy, and reaches each ZooKeeper server through a port of its own there. Nodes are
named by their ids, servers "zookeeper-1" and so on, all other processes "client".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.config.listeners import Listener
from anabranch.chaos.control import SOCKET_NAME, Control
from anabranch.cli.process_clusters import front_routes
from anabranch.clients.security import Security, SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.cluster import zookeeper_sessions
from anabranch.cluster.control_socket import OrderRefused
from anabranch.cluster.ensemble import LocalEnsemble
from anabranch.cluster.launched_agent import AgentOptions, LaunchedAgent
from anabranch.cluster.link_proxy import Proxy
from anabranch.cluster.process_registry import LauncherSocket
from anabranch.cluster.processes import (
    FIRST_CONTROLLER_ID,
    SMALL_CLUSTER,
    NodeFailed,
    NodeProcess,
    free_ports,
    known_brokers,
    wait_for_live_brokers,
)
from anabranch.cluster.zookeeper_links import ZooKeeperLinks
from anabranch.control.actions import ActionRefused
from anabranch.control.front.front import Front
from anabranch.control.front.launched_front import launched_front
from anabranch.runtime.runner import StopSignal
from anabranch.runtime.startable import Startable

if TYPE_CHECKING:
    from anabranch.control.endpoint import ControlEndpoint

HOST: Final = "127.0.0.1"
POLL_S: Final = 0.05
LISTENER: Final = "SASL_PLAINTEXT"
"""The listener of clusters with authentication. Not TLS: the proxy parses requests to hold those of one API."""
LOGIN: Final[SecurityArguments] = {
    "security_protocol": LISTENER,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "chaos",
    "sasl_plain_password": "let-me-in",
}


def login_properties() -> Mapping[str, str]:
    """Return the properties of nodes whose listener requires a password: they log in with it, too."""
    name, password = LOGIN["sasl_plain_username"], LOGIN["sasl_plain_password"]
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="{name}" password="{password}" user_{name}="{password}";'
    return {
        "inter.broker.listener.name": LISTENER,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": jaas,
    }


@dataclass
class ChaosCluster(Startable):
    """A cluster; `async with` starts and stops it. `module` is what nodes run: a test may change the product there."""

    directory: Path
    broker_count: int = 3
    controller_count: int = 0
    zookeeper_count: int = 3
    properties: Mapping[str, str] = field(default_factory=dict)
    module: str = "anabranch.cli.main"
    log_level: str = "info"
    access: SecurityArguments = field(default_factory=SecurityArguments)
    """The credentials of clients and nodes: `LOGIN`, or none."""
    proxy: Proxy = field(default_factory=Proxy)
    nodes: dict[int, NodeProcess] = field(default_factory=dict)
    advertised: dict[int, int] = field(default_factory=dict)
    """Node -> its port at the proxy."""
    frozen: set[int] = field(default_factory=set)
    """Stopped pids of ZooKeeper servers."""

    def __post_init__(self) -> None:
        self.ensemble = LocalEnsemble(self.directory, self.zookeeper_count)
        self.zookeeper_links: ZooKeeperLinks | None = None
        """The nodes' links to ZooKeeper, through the proxy, once the ensemble runs."""
        self._front: Front | None = None
        self._controlled = contextlib.AsyncExitStack()

    @property
    def front(self) -> Front:
        """The front of the running cluster: its actions and rules are the faults of a run."""
        assert self._front is not None, "the cluster runs"
        return self._front

    @property
    def security(self) -> Security | None:
        """The credentials of nodes."""
        return make_security(**self.access)

    @property
    def inter_broker_servers(self) -> str:
        """The brokers' own addresses, not the proxy's: the control plane works while links are cut."""
        return ",".join(f"{HOST}:{self.nodes[node_id].port}" for node_id in self.brokers)

    @property
    def brokers(self) -> list[int]:
        """The ids of the nodes that hold data."""
        return [node_id for node_id, node in self.nodes.items() if "broker" in node.roles]

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses at the proxy, for clients."""
        return ",".join(f"{HOST}:{self.advertised[node_id]}" for node_id in self.brokers)

    @property
    def zookeeper(self) -> str:
        """The ensemble's own addresses, not the proxy's: for reading znodes and for ending sessions."""
        return self.ensemble.hosts

    async def start(self) -> None:
        """Start the ensemble, then spare controllers, then brokers; return when all brokers know each other."""
        await self.ensemble.start()
        self.zookeeper_links = ZooKeeperLinks(self.zookeeper, self.proxy)
        spares = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + self.controller_count)
        ids = [*spares, *range(1, self.broker_count + 1)]
        ports = free_ports(HOST, 2 * len(ids))
        for node_id, port, agent_port in zip(ids, ports[: len(ids)], ports[len(ids) :], strict=True):
            await self._place(node_id, port, LaunchedAgent.new(agent_port, AgentOptions()))
        for group in (spares, range(1, self.broker_count + 1)):
            await asyncio.gather(*(self.nodes[one].start() for one in group))
            await asyncio.gather(*(self.nodes[one].wait_ready() for one in group))
        await self.wait_brokers()
        self._front = await self._controlled.enter_async_context(launched_front(self, self._start_by_request))

    async def _place(self, node_id: int, port: int, agent: LaunchedAgent) -> None:
        self.advertised[node_id] = await self.proxy.listen(str(node_id), (HOST, port))
        assert self.zookeeper_links is not None
        replicas = str(min(3, self.broker_count))
        self.nodes[node_id] = NodeProcess(
            node_id=node_id,
            roles="controller" if node_id >= FIRST_CONTROLLER_ID else "broker,controller",
            host=HOST,
            port=port,
            listeners=(Listener(LISTENER, LISTENER, HOST, port),) if self.access else (),
            directory=self.directory,
            zookeeper=await self.zookeeper_links.open(node_id),
            properties={
                **SMALL_CLUSTER,
                "default.replication.factor": replicas,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                **(login_properties() if self.access else {}),
                **self.properties,
            },
            advertise=f"{HOST}:{self.advertised[node_id]}",
            log_level=self.log_level,
            module=self.module,
            agent=agent,
        )

    async def wait_brokers(self, count: int | None = None) -> None:
        """Wait until every running broker knows `count` brokers, or all. Raises NodeFailed."""
        security = make_security(**self.access)
        await wait_for_live_brokers(
            [self.nodes[node_id] for node_id in self.brokers],
            count or self.broker_count,
            lambda node: known_brokers(HOST, node.port, security),
        )

    # --- faults

    async def kill(self, node_id: int) -> None:
        """SIGKILL the node, if it runs."""
        with contextlib.suppress(ActionRefused):  # it has ended by itself
            await self.front.actions.kill(node_id)

    async def restart(self, node_id: int, *, ready: bool = True) -> None:
        """Start an ended node, also while others are frozen; with `ready`, wait until it serves."""
        self.publish("node starting", node=node_id)
        await self.nodes[node_id].start()
        if ready:
            await self.nodes[node_id].wait_ready()
            self.publish("node started", node=node_id)

    async def _start_by_request(self, node_id: int) -> None:
        try:
            await self.nodes[node_id].start()
            await self.nodes[node_id].wait_ready()
        except NodeFailed as error:
            raise OrderRefused(str(error)) from None

    def publish(self, kind: str, **detail: Any) -> None:
        """Record an event of the running cluster."""
        if self._front is not None:
            self._front.publish(kind, **detail)

    def wipe(self, node_id: int) -> None:
        """Delete a dead broker's data, as if it gets a new disk."""
        shutil.rmtree(self.directory / f"node-{node_id}")

    def freeze_server(self, number: int) -> None:
        """SIGSTOP a ZooKeeper server."""
        pid = self.ensemble.servers[number].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        self.frozen.add(pid)

    def thaw_servers(self) -> None:
        """SIGCONT the frozen ZooKeeper servers."""
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen.clear()

    async def active_controller(self) -> int:
        """Return the node that /controller names; -1 if there is none."""
        return await zookeeper_sessions.active_controller(self.zookeeper)

    async def stop(self) -> None:
        """End all faults, resume frozen servers, and end all processes."""
        self.proxy.heal()
        self.thaw_servers()
        await self._controlled.aclose()
        await asyncio.gather(*(node.kill() for node in self.nodes.values()))
        await self.proxy.close()
        await self.ensemble.stop()


@contextlib.asynccontextmanager
async def controlled(cluster: ChaosCluster, endpoint: ControlEndpoint | None) -> AsyncIterator[None]:
    """Serve the control plane of a running cluster while the block runs, if there is an endpoint."""
    if endpoint is None:
        yield
        return
    async with endpoint.serve(cluster.front, front_routes):
        yield


async def serve(
    directory: Path,
    *,
    brokers: int,
    controllers: int,
    zookeepers: int,
    say: Callable[[str], None],
    endpoint: ControlEndpoint | None = None,
) -> int:
    """Run a cluster until a signal; its proxy accepts commands from other processes."""
    stop = StopSignal()
    async with ChaosCluster(directory, brokers, controllers, zookeepers) as cluster, controlled(cluster, endpoint):
        control = Control(cluster.proxy)
        launcher_socket = LauncherSocket(cluster, say)
        await control.listen(directory / SOCKET_NAME)
        await launcher_socket.open()
        control_url = "" if endpoint is None else f" control={endpoint.url}"
        say(f"ready bootstrap={cluster.bootstrap_servers} zookeeper={cluster.zookeeper} at={directory}{control_url}")
        try:
            await stop.wait()
        finally:
            await launcher_socket.close()
            await control.close()
    return 0
