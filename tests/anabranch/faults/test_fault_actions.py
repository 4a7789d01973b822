"""Node actions happen at the hit, and lasting ones end with the rule."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.connection import Connection
from anabranch.clock.cluster_clock import ClusterClock
from anabranch.clock.process import CannotFreeze
from anabranch.cluster.in_process import Cluster
from anabranch.faults.rule_json import InvalidRule
from anabranch.protocol.apis.metadata import MetadataRequest
from tests.broker.serving import until

pytestmark = pytest.mark.asyncio(loop_factories=["clock"])


@asynccontextmanager
async def running(brokers: int = 3) -> AsyncIterator[tuple[Cluster, ClusterClock]]:
    cluster, clock = Cluster(brokers, seed=1), ClusterClock.new()
    assert clock is not None
    async with clock.running(cluster), asyncio.timeout(60):
        yield cluster, clock


async def with_topic(cluster: Cluster, partitions: int = 1, replicas: int = 3) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=partitions, replication_factor=replicas)])
        await admin.wait_for_topic("t", replicas=replicas)


def leader(cluster: Cluster, seen_by: int = 1) -> int:
    return cluster.nodes[seen_by].services.metadata.image.topics["t"].partitions[0].leader


async def test_frozen_leader_is_silent_and_learns_of_new_leader() -> None:
    async with running() as (cluster, clock):
        await with_topic(cluster)
        old = leader(cluster)
        other = old % 3 + 1
        connection = await Connection.open(*cluster.address(old), client_id="app")
        epoch = cluster.nodes[old].services.fence.broker_epoch
        cluster.freeze_broker(old)
        asking = asyncio.ensure_future(connection.call(MetadataRequest(topics=[])))
        await clock.advance(30)
        assert not asking.done() and cluster.is_frozen(old)
        assert leader(cluster, other) not in (old, -1)
        cluster.thaw_broker(old)
        await asking
        await until(lambda: cluster.nodes[old].services.fence.broker_epoch > epoch)
        await connection.close()
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x")


async def test_briefly_frozen_broker_continues_unchanged() -> None:
    async with running() as (cluster, clock):
        await with_topic(cluster)
        old = leader(cluster)
        session, epoch = cluster.nodes[old].services.session, cluster.nodes[old].services.fence.broker_epoch
        cluster.freeze_broker(old)
        await clock.advance(5)
        cluster.thaw_broker(old)
        await clock.advance(60)
        node = cluster.nodes[old]
        assert (node.services.session, node.services.fence.broker_epoch) == (session, epoch)
        assert leader(cluster) == old


async def test_rule_freezes_broker_until_it_ends() -> None:
    async with running(1) as (cluster, _):
        await with_topic(cluster, replicas=1)
        rule = cluster.faults.add(api="Produce", node="freeze", times=1)
        async with Producer(cluster.bootstrap_servers) as producer:
            sent = await producer.send("t", b"x")
            await rule.wait_hit()
            await asyncio.sleep(0.05)
            assert not sent.done() and cluster.is_frozen(1)
            cluster.faults.remove(rule.rule.name)
            assert (await sent).offset == 0 and not cluster.is_frozen(1)


@pytest.mark.parametrize("step", ["resize:after-plan", "resize:after-create", "resize:after-bump"])
async def test_controller_dies_at_a_resize_step_and_next_one_finishes_it(step: str) -> None:
    async with running() as (cluster, clock):
        await with_topic(cluster, partitions=2)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x", key=b"k")  # it is ordered from now on
        rule = cluster.faults.add(step=step, node="kill", times=1)
        first = next(one for one, node in cluster.nodes.items() if node.controller and node.controller.active)
        async with Admin(cluster.bootstrap_servers) as admin:
            growing = asyncio.ensure_future(admin.create_partitions("t", 4))
            await rule.wait_hit()
            await until(lambda: first not in cluster.nodes)
            await asyncio.gather(growing, return_exceptions=True)
        other = next(iter(cluster.nodes.values()))
        await until(lambda: len(other.services.metadata.image.topics["t"].partitions) == 4)
        assert rule.hits == 1
        await clock.run(cluster.start_broker(first))


async def test_dying_controller_executes_nothing_after_its_step() -> None:
    async with running() as (cluster, _):
        await with_topic(cluster, partitions=2)
        first = next(one for one, node in cluster.nodes.items() if node.controller and node.controller.active)
        frozen: list[bool] = []

        def hit(armed: object, node_id: int, what: object) -> None:
            look = contextvars.Context().run  # as nobody's: before anything else that may come behind the step
            look(asyncio.get_running_loop().call_soon, lambda: frozen.append(cluster.is_frozen(first)))

        cluster.faults.on_hit(hit)
        rule = cluster.faults.add(step="create", node="kill", times=1)
        async with Admin(cluster.bootstrap_servers) as admin:
            creating = asyncio.ensure_future(admin.create_topics([NewTopic(name="u", partitions=1)]))
            await rule.wait_hit()
            await asyncio.gather(creating, return_exceptions=True)
        assert frozen == [True] and first not in cluster.nodes


async def test_states_are_written_together_unless_a_rule_waits_for_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping a controller between two partitions costs nothing without such a rule."""
    steps: list[str] = []
    reached = Cluster._on_step

    def noting(cluster: Cluster, node_id: int, step: str) -> None:
        steps.append(step)
        reached(cluster, node_id, step)

    monkeypatch.setattr(Cluster, "_on_step", noting)

    async with running() as (cluster, _), Admin(cluster.bootstrap_servers) as admin:
        first = next(one for one, node in cluster.nodes.items() if node.controller and node.controller.active)

        async def created(name: str) -> list[str]:
            steps.clear()
            await admin.create_topics([NewTopic(name=name, partitions=4)])
            await admin.wait_for_topic(name)
            return [step for step in steps if step.startswith("create:")]

        assert await created("without") == ["create:4"]
        elsewhere = cluster.faults.add(step="resize:after-plan", node="kill", brokers=[first % 3 + 1])
        assert await created("elsewhere") == ["create:4"]
        cluster.faults.remove(elsewhere.rule.name)
        spent = cluster.faults.add(step="create:3", elect="preferred", topic="without", partition=0, times=1)
        assert await created("waiting") == [f"create:{number}" for number in (1, 2, 3, 4)]
        assert spent.hits == 1
        assert await created("spent") == ["create:4"]


async def test_rules_start_brokers_and_elect_leaders() -> None:
    async with running() as (cluster, clock):
        await with_topic(cluster)
        preferred = leader(cluster)
        await clock.run(cluster.crash_broker(preferred))
        other = preferred % 3 + 1
        await until(lambda: leader(cluster, other) not in (preferred, -1))
        cluster.faults.add(api="Produce", node="start", on=preferred, times=1)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x")
            await until(lambda: preferred in cluster.nodes)
            await until(lambda: len(cluster.nodes[other].services.metadata.image.topics["t"].partitions[0].isr) == 3)
            cluster.faults.add(api="Produce", elect="preferred", topic="t", partition=0, times=1)
            await producer.send_and_wait("t", b"x")
        await until(lambda: leader(cluster, other) == preferred)


async def test_broker_is_suspended_from_zookeeper_while_rule_lasts() -> None:
    async with running() as (cluster, _):
        await with_topic(cluster)
        cut = cluster.faults.add(api="Produce", node="suspend", times=1)
        asked = leader(cluster)
        async with Producer(cluster.bootstrap_servers) as producer:
            sent = await producer.send("t", b"x")
            await cut.wait_hit()
            session = cluster.nodes[asked].services.session
            assert "suspended" in repr(session)
            cut.release()
            assert "connected" in repr(session)
            await sent


async def test_unclean_leader_is_elected_when_last_in_sync_replica_is_lost() -> None:
    async with running(2) as (cluster, clock):
        await with_topic(cluster, replicas=2)
        old = leader(cluster)
        other = 3 - old
        await clock.run(cluster.crash_broker(other))
        await until(lambda: cluster.nodes[old].services.metadata.image.topics["t"].partitions[0].isr == (old,))
        await clock.run(cluster.start_broker(other))
        held = cluster.faults.add(api="Fetch", between_brokers=True, error="NOT_LEADER_OR_FOLLOWER")
        await held.wait_hit()
        elected = cluster.faults.add(step="lose", elect="unclean", topic="t", partition=0, times=1)
        await clock.run(cluster.crash_broker(old))
        await elected.wait_hit()
        await until(lambda: leader(cluster, other) == other)


async def test_frozen_broker_can_be_killed_stopped_and_reset() -> None:
    async with running() as (cluster, clock):
        for end in (cluster.crash_broker, cluster.stop_broker):
            cluster.freeze_broker(2)
            await clock.run(end(2))
            assert 2 not in cluster.nodes and not cluster.is_frozen(2)
            await clock.run(cluster.start_broker(2))
        cluster.freeze_broker(2)
        rule = cluster.faults.add(api="Produce", hold=True)
        await clock.run(cluster.reset())
        assert rule.removed and len(cluster.faults) == 0 and not cluster.is_frozen(2)
        cluster.freeze_broker(3)


async def test_freeze_without_clock_is_refused() -> None:
    async with Cluster(1, seed=1) as cluster:
        with pytest.raises(CannotFreeze, match="brokers can be frozen only in a cluster with a clock"):
            cluster.freeze_broker(1)
        cluster.thaw_broker(1)
        for said in ({"api": "Produce", "node": "freeze"}, {"step": "elect", "node": "kill"}):
            with pytest.raises(InvalidRule, match="brokers can be frozen only in a cluster with a clock"):
                cluster.faults.add(**said)


async def test_rules_end_with_their_cluster() -> None:
    async with Cluster(1, seed=1) as cluster:
        rule = cluster.faults.add(api="Produce", hold=True)
    assert rule.removed and not cluster.has_rules


async def test_rule_with_several_hits_starts_a_broker_once(caplog: pytest.LogCaptureFixture) -> None:
    async with running(2) as (cluster, _):
        await cluster.crash_broker(2)
        rule = cluster.faults.add(api="Metadata", node="start", on=2)
        connection = await Connection.open(*cluster.address(1), client_id="app")
        await asyncio.gather(*(connection.call(MetadataRequest(topics=[])) for _ in range(3)))
        await connection.close()
        await until(lambda: 2 in cluster.nodes)
        assert rule.hits == 3 and "start broker 2" not in caplog.text


@pytest.mark.parametrize("what", ["kill", "stop"])
async def test_broker_that_a_rule_ends_can_be_started_at_once(what: Literal["kill", "stop"], tmp_path: Path) -> None:
    cluster, clock = Cluster(2, seed=1, data_dir=tmp_path), ClusterClock.new()
    assert clock is not None
    async with clock.running(cluster), asyncio.timeout(60):
        cluster.faults.add(api="Metadata", node=what, on=2, times=1)
        connection = await Connection.open(*cluster.address(1), client_id="app")
        await connection.call(MetadataRequest(topics=[]))
        await connection.close()
        await until(lambda: 2 not in cluster.nodes)
        await clock.run(cluster.start_broker(2))
        assert sorted(cluster.nodes) == [1, 2]


async def ask(cluster: Cluster) -> None:
    connection = await Connection.open(*cluster.address(1), client_id="app")
    await connection.call(MetadataRequest(topics=[]))
    await connection.close()


async def test_rule_that_is_made_outside_of_the_clusters_time_ends_by_its_clock() -> None:
    async with running(1) as (cluster, clock):
        await clock.advance(3600)
        rule = cluster.faults.add(api="Metadata", throttle_ms=1, until="30s")
        await ask(cluster)
        assert (rule.hits, rule.spent) == (1, False)
        await clock.advance(31)
        await ask(cluster)
        assert (rule.hits, rule.spent) == (1, True)


@pytest.mark.parametrize("how", ["start_broker", "reset"])
async def test_broker_that_is_started_outside_of_the_clusters_time_has_its_clock(how: str) -> None:
    async with running(2) as (cluster, clock):
        await clock.advance(3600)
        if how == "reset":
            await cluster.reset()
        else:
            await cluster.crash_broker(2)
            await cluster.start_broker(2)
        assert abs(cluster.nodes[2].services.clock_ms() - clock.day_ms()) < 60_000
        cluster.freeze_broker(2)
        assert cluster.is_frozen(2)
        cluster.thaw_broker(2)
