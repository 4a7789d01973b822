"""Finds this machine's process clusters by their launchers' control sockets, and restarts their nodes.

A launcher (`anabranch up --processes`) is the process that started the nodes. It alone knows their command lines, ports
and directories. `anabranch nodes start` sends it a command over its control socket
(`anabranch.cluster.control_socket`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from anabranch.cluster.control_socket import (
    Answer,
    ControlSocket,
    OrderRefused,
    own_socket_path,
    send_order,
    socket_paths,
)
from anabranch.cluster.node_process import NodeFailed, NodeProcess

log: Final = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
"""How long a launcher may take to describe its cluster; one that is stopped never does."""
END_NOTICED_S: Final = 0.5
"""The time in which asyncio learns that a process was killed."""


class Launcher(Protocol):
    """The interface of a cluster of processes that can restart its nodes."""

    @property
    def directory(self) -> Path:
        """The directory of the nodes' data and logs."""

    @property
    def nodes(self) -> Mapping[int, NodeProcess]:
        """All nodes by id, running or not."""

    @property
    def zookeeper(self) -> str:
        """The connect string of the nodes' ZooKeeper."""


class LauncherSocket:
    """The control socket of a launcher. It also watches the nodes, and reports one that ends by itself in one line."""

    def __init__(self, launcher: Launcher, say: Callable[[str], None]) -> None:
        self._launcher = launcher
        self._say = say
        self._socket = ControlSocket(self.carry_out)
        self._watching: dict[int, asyncio.Task[None]] = {}
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held while a node starts: the front and `anabranch nodes` may ask for it at the same time."""

    async def open(self) -> None:
        """Accept commands, and watch the running nodes."""
        await self._socket.listen(own_socket_path())
        for node in self._launcher.nodes.values():
            self._watch(node)

    async def close(self) -> None:
        """Stop accepting commands and reporting ended nodes: from now on they are stopped on purpose."""
        await self._socket.close()
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)

    async def carry_out(self, order: Answer) -> Answer:
        """Execute one command."""
        match order["do"]:
            case "nodes":
                rows = [
                    {"id": node.node_id, "pid": node.pid, "address": node.address}
                    for node in self._launcher.nodes.values()
                ]
                directory = str(self._launcher.directory.resolve())
                return {"directory": directory, "zookeeper": self._launcher.zookeeper, "nodes": rows}
            case "start":
                return {"pid": await self.start(int(order["node"]))}
            case other:
                raise OrderRefused(f"cannot {other}")

    async def start(self, node_id: int) -> int:
        """Start an ended node, and wait until it is ready; returns its process id. Raises OrderRefused."""
        node = self._launcher.nodes.get(node_id)
        if node is None:
            there = ", ".join(map(str, self._launcher.nodes))
            raise OrderRefused(f"the cluster in {self._launcher.directory} has no node {node_id}; it has {there}")
        async with self._turns[node_id]:
            if node.running:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(node.wait_ended(), END_NOTICED_S)
            if node.running:
                raise OrderRefused(f"node {node_id} is running already (pid {node.pid})")
            await node.start()
            try:
                await node.wait_ready()
            except NodeFailed as error:
                raise OrderRefused(str(error)) from None
            self._watch(node)
            return node.pid

    async def stop(self, node_id: int) -> None:
        """Stop a node that will be started again, and report nothing."""
        if (watching := self._watching.pop(node_id, None)) is not None:
            watching.cancel()
        await self._launcher.nodes[node_id].stop()

    def _watch(self, node: NodeProcess) -> None:
        if node.running:
            self._watching[node.node_id] = asyncio.ensure_future(self._tell_end(node, node.pid))

    async def _tell_end(self, node: NodeProcess, pid: int) -> None:
        status = await node.wait_ended()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self._say(
            f"node {node.node_id} (pid {pid}) {how}; `anabranch nodes start {node.node_id}` starts it again, "
            f"its log is {node.log_path}"
        )


@dataclass(frozen=True)
class LaunchedCluster:
    """A running cluster of processes, as described by its launcher."""

    socket_path: Path
    directory: str
    zookeeper: str
    nodes: tuple[dict[str, Any], ...]

    def is_called(self, cluster: str) -> bool:
        """Whether `cluster` is this cluster's directory or ZooKeeper; an empty name matches any cluster."""
        return cluster in ("", self.zookeeper) or str(Path(cluster).resolve()) == self.directory

    @property
    def node_ids(self) -> list[int]:
        """The ids of its nodes, running or not."""
        return [int(row["id"]) for row in self.nodes]


async def launched_clusters() -> list[LaunchedCluster]:
    """All clusters of this user on this machine whose launchers respond."""
    found = []
    for socket_path in socket_paths():
        try:
            async with asyncio.timeout(ANSWER_S):
                description = await send_order(socket_path, "nodes")
        except OrderRefused:
            continue  # it is shutting down
        except TimeoutError:
            log.warning(
                "process %s has a cluster, and does not answer: it may be stopped (fg continues it)", socket_path.stem
            )
            continue
        found.append(
            LaunchedCluster(
                socket_path, description["directory"], description["zookeeper"], tuple(description["nodes"])
            )
        )
    return found


async def start_node(node_id: int, cluster: str = "") -> str:
    """Have a node's launcher start the node again. Returns a message for the user.

    Raises OrderRefused if no launcher, or more than one, has such a node, or if the node is running.
    """
    known = await launched_clusters()
    fitting = [one for one in known if one.is_called(cluster) and node_id in one.node_ids]
    if len(fitting) == 1:
        answer = await send_order(fitting[0].socket_path, "start", node=node_id)
        return f"started node {node_id} (pid {answer['pid']})"
    there = "".join(f"\n  --cluster {one.directory}: nodes {', '.join(map(str, one.node_ids))}" for one in known)
    if fitting:
        raise OrderRefused(f"several running clusters have a node {node_id}; name one of them:{there}")
    where = f" in {cluster}" if cluster else ""
    raise OrderRefused(f"no running cluster{where} has a node {node_id}; there are:{there or ' none'}")
