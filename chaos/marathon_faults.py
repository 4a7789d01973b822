"""The faults of a marathon: each disturbs a process of the cluster, and returns whether it had a target.

A killed or frozen process is back when the fault returns.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from anabranch.cluster import zookeeper_sessions
from anabranch.cluster.processes import ProcessCluster

LANES: Final = {"SIGKILL": "kill", "SIGSTOP": "freeze"}
"""The first word of a fault -> its lane in a timeline."""


async def kill_broker(cluster: ProcessCluster, rng: random.Random) -> bool:
    """SIGKILL a broker, and start it again after a while."""
    return await kill(cluster, rng, rng.choice(cluster.brokers).node_id)


async def kill_controller(cluster: ProcessCluster, rng: random.Random) -> bool:
    """SIGKILL the active controller, and start it again after a while."""
    active = await zookeeper_sessions.active_controller(cluster.zookeeper)
    return active in cluster.nodes and await kill(cluster, rng, active)


async def kill(cluster: ProcessCluster, rng: random.Random, node_id: int) -> bool:
    """SIGKILL a node, and start it again after a while."""
    await cluster.kill(node_id)
    await asyncio.sleep(rng.uniform(0.2, 4))
    await cluster.restart(node_id)
    return True


async def expire_session(cluster: ProcessCluster, rng: random.Random) -> bool:
    """End the ZooKeeper session of a node."""
    try:
        victim = await zookeeper_sessions.session_of(cluster.zookeeper, rng.choice(list(cluster.nodes)))
        await zookeeper_sessions.expire(cluster.zookeeper, victim)
    except zookeeper_sessions.NoSession:
        return False
    return True


async def freeze(cluster: ProcessCluster, rng: random.Random) -> bool:
    """SIGSTOP a broker, and SIGCONT it after a while."""
    pid = rng.choice(cluster.brokers).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(rng.uniform(1, 8))
    finally:
        os.kill(pid, signal.SIGCONT)
    return True


FAULTS: Final[dict[str, Callable[[ProcessCluster, random.Random], Awaitable[bool]]]] = {
    "SIGKILL of a broker": kill_broker,
    "SIGKILL of the active controller": kill_controller,
    "a ZooKeeper session expired": expire_session,
    "SIGSTOP of a broker": freeze,
}


def lane_of(fault: str) -> str:
    """Return a fault's lane in a timeline."""
    return "client" if "reader" in fault else LANES.get(fault.partition(" ")[0], "controller")
