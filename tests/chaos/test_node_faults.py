"""Single faults on a small cluster, and overlapping ones on a real ensemble of three, without nodes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.chaos import node_faults
from anabranch.chaos.cluster import ChaosCluster
from anabranch.chaos.fault_table import Fault
from anabranch.chaos.node_faults import (
    break_connections,
    crash_at_step,
    cut,
    delay,
    drop,
    freeze_zookeeper,
    full_disk,
    kill_zookeeper,
    slow_zookeeper,
)
from anabranch.chaos.scene import Scene

pytestmark = [pytest.mark.zookeeper]

TURN_S = 0.01


class BriefScene(Scene):
    """Every pause is short, so that a server is soon on its way back."""

    def pause(self) -> float:
        return 0.2


async def no_resize(*_: object) -> None:
    """No resize is asked for here."""


@pytest.mark.costly
async def test_one_zookeeper_server_is_down_at_a_time(tmp_path: Path) -> None:
    """The ensemble always has a quorum: while a killed server is away, neither fault finds a target."""
    cluster = ChaosCluster(tmp_path)
    scene = BriefScene(cluster, random.Random(1), no_resize, (), set())
    async with cluster.ensemble:
        first = asyncio.ensure_future(kill_zookeeper(scene))
        tries = 0
        while not first.done():
            await asyncio.sleep(TURN_S)
            tries += 1
            if not first.done():
                others = (await freeze_zookeeper(scene), await kill_zookeeper(scene))
                assert others == (None, None), "a server was taken while another was on its way back"
        assert tries > 1
        assert await first is not None
        assert await freeze_zookeeper(scene) is not None
        assert await kill_zookeeper(scene) is not None


@pytest.mark.costly
async def test_no_zookeeper_server_is_stopped_while_another_is_dead(tmp_path: Path) -> None:
    cluster = ChaosCluster(tmp_path)
    scene = BriefScene(cluster, random.Random(1), no_resize, (), set())
    async with cluster.ensemble as ensemble:
        await ensemble.kill(3)
        assert await freeze_zookeeper(scene) is None
        assert await kill_zookeeper(scene) is None


@pytest.mark.costly
@pytest.mark.processes
async def test_rules_of_faults_hit_and_leave_a_cluster_that_stores_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_faults, "EVERY_STEP", ("resize:after-plan",))
    monkeypatch.setattr(node_faults, "LOST_S", (0.2,))
    cluster = ChaosCluster(tmp_path, 2, 1, zookeepers=1)
    async with cluster, Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        await admin.create_topics([NewTopic(name="t", partitions=4, replication_factor=2)])
        await admin.wait_for_topic("t", replicas=2)

        async def resize() -> None:
            count = len((await admin.describe_topic("t")).partitions)
            await admin.create_partitions("t", count + 1)

        async def load() -> None:
            while True:
                await producer.send_and_wait("t", b"x")
                await asyncio.sleep(TURN_S)

        scene = BriefScene(cluster, random.Random(1), resize, (), set())
        loading = asyncio.create_task(load())
        try:
            for one in (cut, drop, delay, break_connections, full_disk, slow_zookeeper, crash_at_step):
                await until_it_has_an_effect(one, scene)
                assert await cluster.front.rules.rows() == []
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        await producer.send_and_wait("t", b"last")
        await cluster.front.settle()
        kinds = {one.kind for one in cluster.front.events.after(0)}
    assert {"fault", "node started"} <= kinds, "the history of the control plane has the faults"


async def until_it_has_an_effect(fault: Fault, scene: Scene) -> None:
    """Repeat a fault: two nodes without traffic between them may be chosen."""
    async with asyncio.timeout(300):
        while await fault(scene) is None:
            pass
