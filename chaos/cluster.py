"""A cluster of processes for chaos: brokers, spare controllers, three ZooKeeper servers, and the front of its agents.

The faults of a run are the front's actions and rules. The servers of ZooKeeper, and the nodes' links to them, belong to
this process: their failures have no action of the control plane.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.process_clusters import front_routes
from anabranch.clients.security import SecurityArguments
from anabranch.cluster.control_socket import OrderRefused
from anabranch.cluster.ensemble import LocalEnsemble
from anabranch.cluster.launched_agent import AgentOptions
from anabranch.cluster.node_process import COMMAND_MODULE, NodeFailed
from anabranch.cluster.processes import ProcessCluster
from anabranch.control.actions import ActionRefused
from anabranch.control.front.launched_front import launched_front

if TYPE_CHECKING:
    from anabranch.control.endpoint import ControlEndpoint
    from anabranch.control.front.front import Front

LISTENER: Final = "SASL_PLAINTEXT"
"""The listener of clusters with authentication."""
LOGIN: Final[SecurityArguments] = {
    "security_protocol": LISTENER,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "chaos",
    "sasl_plain_password": "let-me-in",
}


def login_properties() -> Mapping[str, str]:
    """Return the properties of nodes whose listener requires a password: they log in with it, too."""
    name, password = LOGIN["sasl_plain_username"], LOGIN["sasl_plain_password"]
    return {
        "inter.broker.listener.name": LISTENER,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": _jaas(f'user_{name}="{password}"'),
    }


def client_properties() -> Mapping[str, str]:
    """Return the properties of a client that logs in with `LOGIN`, by their Kafka names."""
    return {"security.protocol": LISTENER, "sasl.mechanism": LOGIN["sasl_mechanism"], "sasl.jaas.config": _jaas()}


def _jaas(*users: str) -> str:
    """The login as a JAAS configuration, with the users that a node accepts."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    name, password = LOGIN["sasl_plain_username"], LOGIN["sasl_plain_password"]
    return " ".join((f'{module} required username="{name}" password="{password}"', *users)) + ";"


class ChaosCluster(ProcessCluster):
    """A cluster; `async with` starts and stops it.

    Args:
        directory: The directory for data and logs.
        brokers: The number of brokers.
        controllers: The number of spare controllers.
        zookeepers: The number of ZooKeeper servers.
        properties: Broker properties by their Kafka names, for all nodes.
        module: What nodes run: a test may change the product there.
        login: Whether clients and nodes log in with `LOGIN`.
        journal_size: The number of exchanges that each node's journal keeps; 0 for no journal.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        controllers: int = 0,
        zookeepers: int = 3,
        *,
        properties: Mapping[str, str] | None = None,
        module: str = COMMAND_MODULE,
        login: bool = False,
        journal_size: int = 0,
    ) -> None:
        super().__init__(
            brokers,
            controllers=controllers,
            directory=directory,
            listeners=(f"{LISTENER}://127.0.0.1:0",) if login else (),
            properties={**(login_properties() if login else {}), **(properties or {})},
            agents=AgentOptions(journal_size),
            module=module,
        )
        self.access = LOGIN if login else SecurityArguments()
        """The credentials of clients and nodes: `LOGIN`, or none."""
        self.client_properties = client_properties() if login else {}
        """The same for programs, by their Kafka names."""
        self.ensemble = LocalEnsemble(directory, zookeepers)
        self._frozen_servers: set[int] = set()
        """Stopped pids of ZooKeeper servers."""
        self._front: Front | None = None
        self._controlled = contextlib.AsyncExitStack()

    @property
    def front(self) -> Front:
        """The front of the running cluster: its actions and rules are the faults of a run."""
        assert self._front is not None, "the cluster runs"
        return self._front

    @property
    def broker_ids(self) -> list[int]:
        """The ids of the nodes that hold data."""
        return [node.node_id for node in self.brokers]

    @property
    def zookeeper(self) -> str:
        """The ensemble's own addresses, without faults: for reading znodes and for ending sessions."""
        return self.ensemble.hosts

    async def start(self) -> None:
        """Start the ensemble, then the nodes, then the front."""
        await self.ensemble.start()
        await super().start()
        self._front = await self._controlled.enter_async_context(launched_front(self, self._start_by_request))

    # --- faults

    async def kill(self, node_id: int) -> None:
        """SIGKILL the node, if it runs."""
        with contextlib.suppress(ActionRefused):  # it has ended by itself
            await self.front.actions.kill(node_id)

    async def restart(self, node_id: int) -> None:
        """Start an ended node, also while others are frozen, and wait until it serves."""
        self.publish("node starting", node=node_id)
        await super().restart(node_id)
        self.publish("node started", node=node_id)

    async def _start_by_request(self, node_id: int) -> None:
        try:
            await super().restart(node_id)
        except NodeFailed as error:
            raise OrderRefused(str(error)) from None

    def publish(self, kind: str, **detail: Any) -> None:
        """Record an event of the running cluster."""
        if self._front is not None:
            self._front.publish(kind, **detail)

    def freeze_server(self, number: int) -> None:
        """SIGSTOP a ZooKeeper server."""
        pid = self.ensemble.servers[number].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        self._frozen_servers.add(pid)

    def thaw_servers(self) -> None:
        """SIGCONT the frozen ZooKeeper servers."""
        for pid in self._frozen_servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen_servers.clear()

    async def stop(self) -> None:
        """End all faults, resume frozen servers, and end all processes."""
        self.thaw_servers()
        await self._controlled.aclose()
        await super().stop()
        await self.ensemble.stop()


@contextlib.asynccontextmanager
async def controlled(cluster: ChaosCluster, endpoint: ControlEndpoint | None) -> AsyncIterator[None]:
    """Serve the control plane of a running cluster while the block runs, if there is an endpoint."""
    if endpoint is None:
        yield
        return
    async with endpoint.serve(cluster.front, front_routes):
        yield
