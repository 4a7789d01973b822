"""Controller failover: from the end of its session until every live broker's metadata has a leader for every partition.

Three brokers in one process, each a controller candidate, replication factor 3, with a real ZooKeeper. The active
controller's broker loses its session: a third of all partitions lose their leader, all of them an in-sync replica. The
next controller must be elected, read everything, elect leaders, write, and notify the other two brokers. Controller and
brokers share one core here; separate processes would not. The peer is the ZooKeeper part of the same work with one
request per znode: read every state, then write every state under the fence.

    python -m benchmarks.failover [--partitions 100 1000 5000] [--rounds 3]
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.cluster.in_process import Cluster
from anabranch.cluster.local_zookeeper import LocalZooKeeper, why_unavailable
from anabranch.controller import topic_admin
from anabranch.controller.placement import assign_replicas
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import Check, Set
from benchmarks.report import Figure, console, median, run_benchmark, table, times, working

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage
    from anabranch.broker.node.app import Node
    from anabranch.controller.zk.session import ZkSession

SIZES: Final = (100, 1000, 5000)
AIM_S: Final = {1000: 2.0}
ROUNDS: Final = 3
LARGE: Final = 1000
"""Larger clusters fail over once, because their creation dominates the run."""
TOPIC_PARTITIONS: Final = 100
TIMEOUT_MS: Final = 300_000
AT_ONCE: Final = 64


class Ensemble:
    """A real ZooKeeper, in the interface of a cluster's ZooKeeper."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts

    async def connect(self, session_timeout_ms: int) -> ZkSession:
        """Open a session."""
        from anabranch.controller.zk.kazoo_session import open_kazoo

        return await open_kazoo(self._hosts, session_timeout_ms=session_timeout_ms)


async def fail_over(partitions: int, hosts: str | None) -> tuple[float, float]:
    """Fail over one cluster; returns its seconds, and those of the peer."""
    cluster = Cluster(3, seed=partitions)
    if hosts is not None:
        cluster.zookeeper = Ensemble(hosts)  # type: ignore[assignment]
    async with cluster:
        names = await create(cluster, partitions)
        victim = next(node for node in cluster.nodes.values() if node.controller is not None and node.controller.active)
        peer_s = await one_by_one(cluster, victim, names)
        with settled_memory():
            failover_s = await lose(cluster, victim)
    return failover_s, peer_s


async def create(cluster: Cluster, partitions: int) -> list[str]:
    """Create topics with this many partitions, and wait for leaders."""
    session, rng = cluster.nodes[1].session, random.Random(partitions)
    sizes = [min(TOPIC_PARTITIONS, partitions - start) for start in range(0, partitions, TOPIC_PARTITIONS)]
    names = [f"topic-{number}" for number in range(len(sizes))]
    for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
        replicas = assign_replicas(sorted(cluster.nodes), size, 3, start_index=number, shift=number)
        await topic_admin.create_topic(session, name=name, topic_id=rng.randbytes(16), assignment=replicas, configs={})
    await all_show(cluster.nodes.values(), lambda image: led(image) == partitions)
    return names


async def lose(cluster: Cluster, victim: Node) -> float:
    """End the session of a node, and wait until the others serve everything without it."""
    lost = victim.settings.node_id
    others = [node for number, node in cluster.nodes.items() if number != lost]
    partitions = led(others[0].services.metadata.image)
    await victim.services.session.close()
    started_s = time.perf_counter()
    await all_show(others, lambda image: lost not in image.brokers and led(image) == partitions)
    return time.perf_counter() - started_s


async def all_show(nodes: Any, condition: Any) -> None:
    """Wait until the metadata of all these nodes meets the condition."""
    shown = await asyncio.gather(*(node.services.metadata.wait_until(condition, TIMEOUT_MS) for node in nodes))
    assert all(shown), "no failover in five minutes"


def led(image: ClusterImage) -> int:
    """The number of partitions with a live leader."""
    return sum(one.leader in image.brokers for topic in image.topics.values() for one in topic.partitions.values())


async def one_by_one(cluster: Cluster, victim: Node, names: Sequence[str]) -> float:
    """Read and rewrite the states of all partitions with one request each, in a separate session."""
    session = await cluster.zookeeper.connect(30_000)
    states = [
        paths.partition_state(name, index)
        for name in names
        for index in victim.services.metadata.image.topics[name].partitions
    ]
    fence = (await session.get(paths.CONTROLLER_EPOCH))[1].version
    scratch = "/scratch"
    await session.create(scratch, b"")
    started_s = time.perf_counter()

    async def read(path: str) -> bytes:
        return (await session.get(path))[0]

    found = await pipelined([read(path) for path in states])
    await pipelined([session.multi([Check(paths.CONTROLLER_EPOCH, fence), Set(scratch, data)]) for data in found])
    taken_s = time.perf_counter() - started_s
    await session.delete(scratch)
    await session.close()
    return taken_s


async def pipelined(requests: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run many requests, some at a time; returns their results."""
    answers: list[Any] = []
    for start in range(0, len(requests), AT_ONCE):
        answers += await asyncio.gather(*requests[start : start + AT_ONCE])
    return answers


@contextlib.contextmanager
def settled_memory() -> Iterator[None]:
    """Freeze the start's objects for the garbage collector, as a started node does."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def measure(sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> list[Figure]:
    reason = why_unavailable()
    if reason is not None:
        console.print(f"no real ZooKeeper ({reason}): measuring with the one in memory", style="yellow")
    taken: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    with working("failing over") as status:
        for size in sizes:
            turns = rounds if size <= LARGE else 1
            for number in range(turns):
                status.update(f"failing over {size} partitions: round {number + 1} of {turns}")
                with contextlib.ExitStack() as stack:
                    hosts = None if reason else stack.enter_context(LocalZooKeeper()).hosts
                    taken[size].append(asyncio.run(fail_over(size, hosts)))
    own = {size: median(one for one, _ in taken[size]) for size in sizes}
    peer = {size: median(one for _, one in taken[size]) for size in sizes}
    table(
        f"controller failover: medians of up to {rounds}, three brokers in one process, replication factor 3",
        *("partitions", "failover, s", "best, s", "znode by znode, s", "ratio"),
        rows=[
            (
                str(size),
                f"{own[size]:.3f}",
                f"{min(taken[size])[0]:.3f}",
                f"{peer[size]:.3f}",
                times(own[size], peer[size]),
            )
            for size in sizes
        ],
        note="znode by znode: the ZooKeeper part alone, one request for each read and each write",
    )
    return [
        Figure(
            f"controller failover, {size} partitions",
            f"< {AIM_S[size]:.1f} s" if size in AIM_S else "",
            f"{own[size]:.3f} s",
            f"its znodes one by one {peer[size]:.3f} s",
            own[size] < AIM_S[size] if size in AIM_S else None,
        )
        for size in sizes
    ]


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        partitions=(SIZES, "sizes of the clusters"),
        rounds=(ROUNDS, "failovers of each size"),
    )


if __name__ == "__main__":
    sys.exit(main())
