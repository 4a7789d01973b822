"""The addresses of control agents in ZooKeeper: the ephemeral `/anabranch/control/ID` of each node that has an agent.

Brokers and spare controllers use the same path. A znode holds no secret: the token is not part of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.controller.zk import paths
from anabranch.controller.zk.body import Body, MalformedZnode
from anabranch.controller.zk.session import NoAuth, NodeExists, NoNode
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)


@value
class AgentAddress:
    """The address of an agent, and its process."""

    node_id: int
    url: str
    pid: int
    host: str
    """The name of the machine on which the process runs."""
    pid_namespace: str = ""
    """The namespace in which `pid` is a process: each container has its own."""


def pid_namespace() -> str:
    """The namespace of this process's id; empty where the kernel has none."""
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def encode(address: AgentAddress) -> bytes:
    """Encode the body of an address znode."""
    row = {"url": address.url, "pid": address.pid, "host": address.host, "pid_namespace": address.pid_namespace}
    return json.dumps(row).encode()


def decode(path: str, data: bytes) -> AgentAddress:
    """Decode an address znode. Raises MalformedZnode."""
    name = path.rpartition("/")[2]
    if not name.isdecimal():
        raise MalformedZnode(path, "its name should be a node id")
    body = Body.parse(path, data)
    return AgentAddress(
        int(name), body.text("url"), body.integer("pid"), body.text("host"), body.text("pid_namespace", "")
    )


async def register(session: ZkSession, address: AgentAddress) -> None:
    """Create a node's address znode; it replaces that of an earlier process with the same node id."""
    path = paths.control_agent(address.node_id)
    while True:
        try:
            await session.create(path, encode(address), ephemeral=True, make_parents=True)
        except NodeExists:
            with contextlib.suppress(NoNode):
                await session.delete(path)
        except NoAuth as error:
            log.warning("no front will find the control agent of node %d: %s", address.node_id, error)
            return
        else:
            return


async def read_addresses(session: ZkSession) -> list[AgentAddress]:
    """Read the addresses of all agents, by node id; malformed ones are skipped with a warning."""
    try:
        names = await session.children(paths.CONTROL_AGENTS)
    except NoNode:
        return []
    found = []
    for name in names:
        path = f"{paths.CONTROL_AGENTS}/{name}"
        try:
            data, _ = await session.get(path)
            found.append(decode(path, data))
        except NoNode:
            continue
        except MalformedZnode as error:
            log.warning("%s", error)
    return sorted(found, key=lambda one: one.node_id)
