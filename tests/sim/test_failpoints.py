"""Every controller fails once after each step, and the work is completed.

It dies, or loses its session and lives, or freezes until it has lost it and goes on where it was: in one of these ways
after each step, and in all of them where ANABRANCH_EVERY_FAILURE is set, as it is by `make sim`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.chaos.checkers import CHECKERS
from anabranch.controller.failpoints import STEPS
from anabranch.controller.features import RESHARD
from anabranch.controller.zk import paths, znodes
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim import probes
from tests.sim.administration import elect, producer_id, reassign, update_feature
from tests.sim.clients import CLIENT_FAILURES
from tests.sim.cluster import SimCluster
from tests.sim.loop import Process

DONE_BEFORE = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


async def insist(cluster: SimCluster, name: str, work: Callable[[Admin], Awaitable[object]]) -> None:
    """Retry until it is done, through crashes; a repeated request may find its own success."""
    for attempt in range(60):
        try:
            async with Admin(cluster.bootstrap, request_timeout_ms=3000, rng=cluster.rng(f"{name}-{attempt}")) as admin:
                await work(admin)
            return
        except KafkaError as error:
            if error.code in DONE_BEFORE:
                return
            await asyncio.sleep(0.3)
        except CLIENT_FAILURES:
            await asyncio.sleep(0.3)
    raise AssertionError(f"{name} was never done")


async def resized(admin: Admin, count: int) -> None:
    if (await admin.describe_topic("t")).live != tuple(range(count)):
        await admin.create_partitions("t", count, allow_shrink=True)


async def grown(admin: Admin) -> None:
    if len((await admin.describe_topic("plain")).partitions) != 4:
        await admin.create_partitions("plain", 4)


async def finalized(admin: Admin, cluster: SimCluster, level: int) -> None:
    znode = cluster.zookeeper.tree.nodes[paths.FEATURE]
    if znodes.decode_feature(paths.FEATURE, znode.data).get(RESHARD, 0) != level:
        await update_feature(admin, RESHARD, level)


async def administration(cluster: SimCluster) -> None:
    """Everything that is asked of a controller while all goes well."""
    for level in (0, 1):
        await insist(cluster, f"{RESHARD} {level}", lambda a, level=level: finalized(a, cluster, level))  # type: ignore[misc]
    await insist(cluster, "a producer id", producer_id)
    plain = NewTopic(name="plain", partitions=2, replication_factor=3, configs={"enable.ordered.delivery": "false"})
    await insist(
        cluster, "create t", lambda a: a.create_topics([NewTopic(name="t", partitions=4, replication_factor=3)])
    )
    await insist(cluster, "create plain", lambda a: a.create_topics([plain]))
    await insist(cluster, "6", lambda a: resized(a, 6))
    await insist(cluster, "3", lambda a: resized(a, 3))
    await insist(cluster, "a record", lambda _: record_with_generation(cluster))
    await insist(cluster, "grow", grown)
    await insist(cluster, "move", lambda a: moved(a, cluster))
    await insist(cluster, "delete", lambda a: a.delete_topics(["plain"]))
    cluster.write_znode(paths.topic("stock"), b'{"version": 1, "partitions": {"0": [2, 3]}}')
    cluster.write_znode(paths.delete_topic("nothing"), b"")
    await cluster.until(lambda: ("stock", 0) in dict(cluster.states()), 10, "a topic of a stock tool is completed")


async def record_with_generation(cluster: SimCluster) -> None:
    """The first record with a generation is acknowledged only after the mark is written."""
    async with Producer(cluster.bootstrap, request_timeout_ms=1000, rng=cluster.rng("producer")) as producer:
        await producer.send_and_wait("t", b"value", key=b"key")
    assert znodes.decode_topic("", cluster.zookeeper.tree.nodes[paths.topic("t")].data).has_generations


async def moved(admin: Admin, cluster: SimCluster) -> None:
    """Away from a broker that had a replica, and back."""
    for target in ((2, 3), (3, 1, 2)):
        await reassign(admin, "plain", {0: target})
        assert await cluster.until(lambda ids=target: cluster.assignments()["plain", 0] == ids, 10, "a move")


async def outages(cluster: SimCluster) -> None:
    """One broker dies, all die, one stops cleanly, and so does the active controller."""
    cluster.crash(1)
    await asyncio.sleep(4)
    cluster.boot(1)
    await cluster.until(cluster.in_sync, 30, "all replicas are in sync after a crash")
    await asyncio.sleep(3)  # for preferred leaders
    for machine in cluster.brokers:
        cluster.crash(machine.node_id)
    await asyncio.sleep(3)
    for machine in cluster.brokers:
        cluster.boot(machine.node_id)
    await cluster.until(cluster.in_sync, 30, "all replicas are in sync after all crashed")
    for stopped in (2, cluster.active_controller()):
        await cluster.stop(stopped)
        await asyncio.sleep(1)
        cluster.boot(stopped)
        await cluster.until(cluster.in_sync, 30, f"all replicas are in sync after a stop of {stopped}")


async def epoch_raised_by_hand(cluster: SimCluster) -> None:
    """Nothing that the controller writes is taken any more, though /controller is its own: it has to give that back."""
    tree = cluster.zookeeper.tree
    epoch = znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, tree.nodes[paths.CONTROLLER_EPOCH].data)
    body = znodes.encode_controller_epoch(epoch + 1)
    cluster.zookeeper.write(lambda: tree.set(paths.CONTROLLER_EPOCH, body, -1))
    cluster.write_znode(paths.delete_topic("nothing"), b"")
    await cluster.until(cluster.resting, 10, "the next controller writes")
    await cluster.until(cluster.in_sync, 30, "all replicas are in sync after a change of controllers")


async def leaders_at_any_price(cluster: SimCluster) -> None:
    """The only in-sync replica is dead, and an administrator requests an unclean election."""
    await left_alone(cluster)
    cluster.crash(3)
    await cluster.until(lambda: cluster.leader("stock", 0) == -1, 10, "nobody leads")
    cluster.boot(2)
    work = insist(cluster, "any leader", lambda a: led_by_2(a, cluster))
    await cluster.loop.spawn(Process("operator"), work)
    await cluster.until(lambda: cluster.leader("stock", 0) == 2, 10, "anybody leads")
    cluster.boot(3)
    await cluster.until(cluster.in_sync, 30, "all replicas are in sync in the end")
    await cluster.until(lambda: len(cluster.assignments()) == 4, 30, "what was drained is gone")


async def left_alone(cluster: SimCluster) -> None:
    """Broker 3 is the only one in sync; if it was out for a fault of its own when 2 died, another time."""
    while True:
        cluster.crash(2)
        for _ in range(100):
            if cluster.isr("stock", 0) == (3,):
                return
            await asyncio.sleep(0.1)
        cluster.boot(2)
        await cluster.until(cluster.in_sync, 30, "all replicas are in sync once more")


async def led_by_2(admin: Admin, cluster: SimCluster) -> None:
    """A controller that does not know a death yet answers that no election is needed: then retry."""
    await elect(admin, "stock", [0], unclean=True)
    if cluster.leader("stock", 0) != 2:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)


async def story(cluster: SimCluster, step: str, how: Any) -> None:
    for machine in cluster.machines.values():
        machine.failpoint, machine.at_failpoint = step, how
    await cluster.start()
    await cluster.loop.spawn(Process("operator"), administration(cluster))
    await cluster.until(cluster.in_sync, 30, "all replicas are in sync")
    await outages(cluster)
    await epoch_raised_by_hand(cluster)
    await leaders_at_any_price(cluster)


WAYS = ("killed", "expired", "frozen")


def failures() -> list[tuple[str, str]]:
    """Each step with the ways in which controllers fail after it."""
    if os.environ.get("ANABRANCH_EVERY_FAILURE"):
        return [(step, how) for step in STEPS for how in WAYS]
    return [(step, WAYS[place % len(WAYS)]) for place, step in enumerate(STEPS)]


@pytest.mark.parametrize(("step", "how"), failures())
def test_controllers_fail_after_a_step_and_work_is_finished(step: str, how: str) -> None:
    cluster = SimCluster(f"step {step}", spares=1)
    with probes.watching(cluster):
        cluster.loop.run(story(cluster, step, how))
    assert cluster.history.failures == []
    assert cluster.loop.failures == []
    failed = cluster.fired[f"controller {how} after {step}"]
    assert failed, f"nobody took this step: {dict(cluster.steps)}"
    published = [one.history for one in cluster.history.published if one.topic == "t"]
    assert published[-1] == ((0, 4), (1, 6), (2, 3))
    terms = [one.epoch for one in cluster.history.epochs]
    assert len(terms) > failed
    assert terms == sorted(set(terms))
    assert [place for place, _ in cluster.states()] == [("stock", 0), ("t", 0), ("t", 1), ("t", 2)]
    assert cluster.assignments().keys() == dict(cluster.states()).keys()
    for name in ("C1 leader-in-isr", "C6 epochs", "C11 stale-controller"):
        assert list(CHECKERS[name](cluster.history)) == []
