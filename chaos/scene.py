"""The targets of faults in a chaos run: the cluster, and the nodes that no other fault uses.

A target is chosen by its role, which the cluster itself reports. A fault reserves its nodes until they are repaired, so
two faults never have the same node.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch import Admin
from anabranch.chaos.clients import CLIENT_FAILURES, TOPIC, Reader
from anabranch.chaos.cluster import ChaosCluster
from anabranch.chaos.copiers import CopiedTopic
from anabranch.chaos.members import MemberGroup
from anabranch.chaos.numbered_topic import NumberedTopic
from anabranch.chaos.share_readers import SHARED, SharedTopic
from anabranch.cluster.node_process import NodeFailed
from anabranch.cluster.zookeeper_sessions import active_controller
from anabranch.controller.zk.session import ZkError

RESTART_S: Final = 60.0
LOOKING_FAILED: Final = (ZkError, OSError, TimeoutError)

Resize = Callable[[], Awaitable[None]]


@dataclass
class Scene:
    """The targets of faults."""

    cluster: ChaosCluster
    rng: random.Random
    resize: Resize
    """Resizes the topic now, so that a controller executes the steps of a resize."""
    readers: Sequence[Reader]
    busy: set[int]
    """Nodes that a fault has reserved."""
    groups: Sequence[MemberGroup] = ()
    """Groups of other projects' consumers."""
    shared: SharedTopic | None = None
    """The topic of a share group."""
    copied: CopiedTopic | None = None
    """The topic to which copiers write."""
    numbered: NumberedTopic | None = None
    """The topic to which a Streams application writes."""

    def free(self, nodes: Sequence[int]) -> list[int]:
        """Return the running nodes that no other fault has reserved."""
        return [one for one in nodes if one not in self.busy and self.cluster.nodes[one].running]

    async def victim(self, *, brokers_only: bool = False) -> int | None:
        """Choose a node by its role; None when all are reserved."""
        role = self.rng.random()
        candidates = [await self.active()] if role < 0.35 else await self.leaders() if role < 0.7 else []
        # No await from here to the caller's `hands_on`: another fault could reserve the same node.
        nodes = self.free(self.cluster.broker_ids if brokers_only else list(self.cluster.nodes))
        if not nodes:
            return None
        return self.rng.choice([one for one in candidates if one in nodes] or nodes)

    async def active(self) -> int:
        """Return the active controller's id; -1 if there is none, or ZooKeeper does not answer."""
        with contextlib.suppress(*LOOKING_FAILED):
            return await active_controller(self.cluster.zookeeper)
        return -1

    async def leaders(self) -> list[int]:
        """Return the leaders of the topics' partitions, if a broker answers."""
        topics = (TOPIC,) if self.shared is None else (TOPIC, SHARED)
        try:
            async with asyncio.timeout(5), Admin(self.cluster.bootstrap_servers, **self.cluster.access) as admin:
                found = [await admin.describe_topic(topic) for topic in topics]
        except CLIENT_FAILURES:
            return []
        return [one.leader for topic in found for one in topic.partitions.values()]

    def pause(self) -> float:
        """Return a time in seconds: much shorter than a session timeout, similar, or longer."""
        return self.rng.choice((0.3, 1.0, 3.0, 6.0, 8.0)) * (0.8 + 0.4 * self.rng.random())

    async def restart(self, node_id: int) -> None:
        """Restart a node until it starts. Raises `NodeFailed` if it never does."""
        deadline = asyncio.get_running_loop().time() + RESTART_S
        while True:
            try:
                await self.cluster.restart(node_id)
                return
            except NodeFailed:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await self.cluster.kill(node_id)
                await asyncio.sleep(1)


@contextlib.contextmanager
def hands_on(scene: Scene, *nodes: int) -> Iterator[None]:
    """Reserve these nodes against other faults."""
    scene.busy |= set(nodes)
    try:
        yield
    finally:
        scene.busy -= set(nodes)
