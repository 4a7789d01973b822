"""KIP-903's own test plan, with real processes and a real ZooKeeper: a delayed AlterPartition races a broker's reboot.

A follower catches up; the leader's request to take it into the ISR is delayed; the follower reboots with an empty disk;
the request arrives. With the check nothing comes of it. Without it the empty replica counts as in sync, and when the
leader dies, an acknowledged record is gone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.chaos.cluster import ChaosCluster
from anabranch.cluster import zookeeper_sessions
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.faults.rule import Rule

pytestmark = [pytest.mark.costly, pytest.mark.processes, pytest.mark.zookeeper]

SPARE = 100
LEADER, FOLLOWER = 1, 2
PATIENCE_S = 300.0


async def committed(cluster: ChaosCluster) -> Any:
    """The partition's state as ZooKeeper has it."""
    session = await open_kazoo(cluster.zookeeper)
    try:
        path = paths.partition_state("t", 0)
        data, _ = await session.get(path)
        return znodes.decode_partition_state(path, data)
    finally:
        await session.close()


async def until_committed(cluster: ChaosCluster, **wanted: Any) -> Any:
    """Wait until ZooKeeper has this state of the partition."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            state = await committed(cluster)
            if all(getattr(state, name) == value for name, value in wanted.items()):
                return state
            await asyncio.sleep(0.05)


async def die(cluster: ChaosCluster, node_id: int) -> None:
    """SIGKILL, and the session with it."""
    await cluster.kill(node_id)
    session_id = await zookeeper_sessions.session_of(cluster.zookeeper, node_id)
    await zookeeper_sessions.expire(cluster.zookeeper, session_id)


async def delayed_proposal_races_a_reboot(cluster: ChaosCluster) -> None:
    """Up to the moment at which the delayed request has been answered."""
    async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        await admin.create_topics([NewTopic(name="t", assignments={0: [LEADER, FOLLOWER]})])
        await admin.wait_for_topic("t", replicas=2)
        await die(cluster, FOLLOWER)
        await until_committed(cluster, isr=(LEADER,))
        await producer.send_and_wait("t", b"acknowledged", key=b"k")
    rules = cluster.front.rules
    held = (await rules.add(Rule(api=("AlterPartition",), link=(f"{LEADER}:*",), hold=True)))["name"]
    await cluster.restart(FOLLOWER)
    await rules.wait_hits(held, 1, PATIENCE_S)  # it has caught up, and the leader says so
    await die(cluster, FOLLOWER)
    cluster.wipe(FOLLOWER)
    fetches = (await rules.add(Rule(link=(f"{FOLLOWER}:{LEADER}",), hold=True)))["name"]
    await cluster.restart(FOLLOWER)
    assert (await committed(cluster)).isr == (LEADER,), "the request is still under way"
    await rules.remove(held)
    await rules.wait_hits(fetches, 1, PATIENCE_S)


def lines_of(cluster: ChaosCluster, node_id: int) -> str:
    return cluster.nodes[node_id].log_path.read_text()


async def until_logged(cluster: ChaosCluster, node_id: int, text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while text not in lines_of(cluster, node_id):  # noqa: ASYNC110 -- another process
            await asyncio.sleep(0.05)


async def test_with_the_check_delayed_request_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    async with ChaosCluster(tmp_path, 2, 1, zookeepers=1) as cluster:
        await delayed_proposal_races_a_reboot(cluster)
        await until_logged(cluster, LEADER, "reverted (INELIGIBLE_REPLICA)")
        state = await committed(cluster)
        assert (state.leader, state.isr) == (LEADER, (LEADER,)), "nothing was persisted"
        await die(cluster, LEADER)
        state = await until_committed(cluster, leader=-1)
        assert state.isr == (LEADER,), "the empty replica is not elected: the partition waits"
        await cluster.front.rules.clear()
        await cluster.restart(LEADER)
        await until_committed(cluster, leader=LEADER, isr=(LEADER, FOLLOWER))
        async with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as one:
            assert (await one.getone()).value == b"acknowledged"


async def test_without_the_check_acknowledged_record_is_lost(tmp_path: Path) -> None:
    broken = ChaosCluster(tmp_path, 2, 1, zookeepers=1, module="tests.chaos.without_kip_903")
    async with broken as cluster:
        await delayed_proposal_races_a_reboot(cluster)
        await until_committed(cluster, isr=(LEADER, FOLLOWER))
        await die(cluster, LEADER)
        await until_committed(cluster, leader=FOLLOWER)
        await cluster.front.rules.clear()
        async with Producer(cluster.nodes[FOLLOWER].address) as producer:
            stored = await producer.send_and_wait("t", b"next", key=b"k")
        assert stored.offset == 0, "where the acknowledged record was"
