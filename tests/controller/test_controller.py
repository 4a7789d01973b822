"""The controller with in-memory ZooKeeper, and brokers over TCP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.controller import controller as controller_module
from anabranch.controller import topic_admin
from anabranch.controller.events import TimerFired
from anabranch.controller.model import TopicPartition
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import NoAuth, ZkSession
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tests.controller.cluster import TestCluster


@asynccontextmanager
async def running_cluster(brokers: int = 3, **settings: object) -> AsyncIterator[TestCluster]:
    cluster = await TestCluster.start(brokers, **settings)
    try:
        yield cluster
    finally:
        await cluster.stop()


async def test_created_topic_has_leaders_and_is_sent_to_every_broker() -> None:
    async with running_cluster() as cluster:
        assignment = await cluster.create_topic("t", partitions=4, replication=2)
        states = await cluster.states("t")
        assert {index: state.leader for index, state in states.items()} == {i: r[0] for i, r in assignment.items()}
        for broker in cluster.brokers.values():
            await broker.until(lambda broker=broker: len(broker.metadata.get("t", (0, {}))[1]) == 4)
            topic, _ = broker.metadata["t"]
            assert (topic.base, topic.generation, topic.initial_partition_count) == (1, 0, 4)
            assert {one.broker_epoch for one in broker.live_brokers.values()} == {
                other.epoch for other in cluster.brokers.values()
            }


async def test_growing_and_shrinking_publish_generations() -> None:
    async with running_cluster() as cluster:
        await cluster.create_topic("t", partitions=4, replication=2)
        for count in (6, 8, 5):
            result = await cluster.resize("t", count)
            assert (result.error_code, result.error_message) == (0, None)
        body = await cluster.topic("t")
        assert body.history == ((0, 4), (1, 6), (2, 8), (3, 5))
        assert (body.generation, body.undeleted_partition_count, body.plan) == (3, 5, None)
        states = await cluster.states("t")
        assert {index: state.generation for index, state in states.items()} == {
            index: body.lineage.class_generation(index) for index in range(8)
        }
        assert [index for index, state in states.items() if state.sealed] == [5, 6, 7]


async def test_dead_leader_is_replaced_and_leads_again_after_return() -> None:
    async with running_cluster() as cluster:
        await cluster.create_topic("t", partitions=3, replication=3)
        dead = cluster.brokers[1]
        await dead.die()
        await cluster.until_states("t", lambda states: all(1 not in state.isr for state in states.values()))
        assert {state.leader for state in (await cluster.states("t")).values()} == {2, 3}
        await cluster.until(lambda: cluster.seen("broker lost"))
        again = await cluster.add_broker(1)
        await again.until(lambda: len(again.partitions) == 3)
        assert set(again.live_brokers) == {1, 2, 3}


async def test_next_candidate_takes_over_when_session_expires() -> None:
    async with running_cluster() as cluster:
        await cluster.create_topic("t")
        first = cluster.controller
        second = await cluster.add_controller(101)
        assert not second.active
        cluster.zookeeper.expire(first.session_under_test)  # type: ignore[attr-defined]
        await cluster.until(lambda: second.active)
        assert not first.active and second.epoch == 2
        assert "not active" in first.describe()
        assert (await cluster.resize("t", 6)).error_code == 0
        assert [event.controller_epoch for event in cluster.seen("elected")] == [1, 2]


async def test_stopped_controller_hands_over_at_once() -> None:
    async with running_cluster() as cluster:
        second = await cluster.add_controller(101)
        await cluster.controllers[0].stop()
        await cluster.until(lambda: second.active)


async def test_candidate_whose_election_fails_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the node would run without a candidate, and say nothing."""
    monkeypatch.setattr(controller_module, "ELECTION_PAUSE_S", 0.0)
    async with running_cluster() as cluster:
        second = await cluster.add_controller(101)
        session = second.session_under_test  # type: ignore[attr-defined]
        write, failed = session.multi, list[object]()

        async def fail_once(ops: Any) -> Any:
            if failed:
                return await write(ops)
            failed.append(ops)
            raise NoAuth(paths.CONTROLLER_EPOCH)

        monkeypatch.setattr(session, "multi", fail_once)
        await cluster.controllers[0].stop()
        await cluster.until(lambda: second.active)
        assert failed


async def test_zookeeper_requests_of_failover_do_not_grow_with_partitions() -> None:
    async with running_cluster() as cluster:
        requests: dict[int, int] = {}
        broker = cluster.brokers[3]
        for count in (10, 1000):
            assignment = {index: [1, 2, 3] for index in range(count)}
            await topic_admin.create_topic(
                cluster.client, name=f"t{count}", topic_id=b"%16d" % count, assignment=assignment, configs={}
            )
            await broker.until(
                lambda name=f"t{count}", count=count: len(broker.metadata.get(name, (0, ()))[1]) == count
            )
            first = cluster.controller
            second = await cluster.add_controller(first._settings.node_id + 1)
            asked = count_requests(second.session_under_test)  # type: ignore[attr-defined]
            await cluster.brokers[1].die()
            cluster.zookeeper.expire(first.session_under_test)  # type: ignore[attr-defined]
            await broker.until(lambda: broker.metadata and 1 not in broker.live_brokers and leaders_of(broker) == {2})
            assert second.active
            requests[count] = len(asked)
            await cluster.add_broker(1)
            await cluster.until(lambda: 1 in broker.live_brokers)
        assert requests[1000] < requests[10] + 20, requests


def count_requests(session: Any) -> list[None]:
    """A list that grows by one with each request from now on."""
    requests: list[None] = []
    ask = session._ask

    def counted(request: Any) -> Any:
        requests.append(None)
        return ask(request)

    session._ask = counted
    return requests


def leaders_of(broker: Any) -> set[int]:
    """The partitions' leaders in a broker's metadata."""
    return {row.leader for _, partitions in broker.metadata.values() for row in partitions.values()}


async def test_unclean_election_config_of_topic_applies_at_any_time() -> None:
    async with running_cluster() as cluster:
        await topic_admin.create_topic(
            cluster.client, name="t", topic_id=b"t" * 16, assignment={0: [1, 2]}, configs={"retention.ms": "1"}
        )
        await cluster.until_states("t", lambda states: len(states) == 1)
        await cluster.brokers[2].die()
        await cluster.until_states("t", lambda states: states[0].isr == (1,))
        await cluster.add_broker(2)
        await cluster.until(lambda: 2 in cluster.brokers[3].live_brokers)
        await cluster.brokers[1].die()
        await cluster.until_states("t", lambda states: states[0].leader == -1)
        config = {"retention.ms": "1", "unclean.leader.election.enable": "true"}
        await cluster.client.set(paths.topic_config("t"), znodes.encode_config(config))
        await cluster.until_states("t", lambda states: states[0].leader == 2)
        state = (await cluster.states("t"))[0]
        assert (state.isr, state.leader_recovery_state) == ((2,), 1)


async def test_deleted_controller_znode_causes_new_election() -> None:
    async with running_cluster() as cluster:
        await cluster.client.delete("/controller")
        await cluster.until(lambda: cluster.active is not None and cluster.controller.epoch == 2)


async def test_topic_deletion_removes_every_znode() -> None:
    async with running_cluster() as cluster:
        await cluster.create_topic("t", retention_ms="5")
        await topic_admin.delete_topic(cluster.client, "t")
        await cluster.until(lambda: cluster.seen("topic deleted"))
        for path in (paths.topic("t"), paths.topic_config("t"), paths.delete_topic("t")):
            assert await cluster.client.exists(path) is None
        assert all(not broker.partitions for broker in cluster.brokers.values())
        await cluster.create_topic("t", partitions=2)  # the name is free again


async def test_drained_retiring_partition_is_removed_and_its_index_continues() -> None:
    """R13 and R14 over TCP: ListOffsets, tombstone, StopReplica, and LeaderAndIsr with the start offset."""
    async with running_cluster(drained_check_interval_ms=20) as cluster:
        await cluster.create_topic("t", partitions=4)
        retiring = TopicPartition("t", 3)
        for broker in cluster.brokers.values():
            broker.offsets[retiring] = (0, 50)
        await cluster.resize("t", 3)
        sealed = (await cluster.states("t"))[3]
        for broker in cluster.brokers.values():
            broker.offsets[retiring] = (50, 50)
        await cluster.until(lambda: cluster.seen("partition removed"))
        assert 3 not in await cluster.states("t")
        assert (await cluster.topic("t")).retired[3].end_offset == 50
        assert (await cluster.resize("t", 4)).error_code == 0
        again = (await cluster.states("t"))[3]
        assert again.leader_epoch == sealed.leader_epoch + 1
        leader = cluster.brokers[again.leader]
        assert leader.partitions[retiring].log_start_offset == 50


async def test_inactive_controller_answers_not_controller() -> None:
    async with running_cluster() as cluster:
        other = await cluster.add_controller(101)
        assert (await other.alter_partition(AlterPartitionRequest(broker_id=1, topics=[]))).error_code == 41
        assert (await other.controlled_shutdown(ControlledShutdownRequest(broker_id=1))).error_code == 41
        topic = CreatePartitionsTopic(name="t", count=5, assignments=None)
        answer = await other.create_partitions(
            CreatePartitionsRequest(topics=[topic], timeout_ms=100, validate_only=False)
        )
        assert [(row.name, row.error_code) for row in answer.results] == [("t", 41)]


async def test_slow_resize_times_out_for_its_caller_only() -> None:
    async with running_cluster() as cluster:
        await cluster.create_topic("t")
        slow = cluster.brokers[1]
        slow.answering.clear()
        assert (await cluster.resize("t", 8, timeout_ms=30)).error_code == 7
        assert "resizing to 8" in cluster.controller.describe()
        slow.answering.set()
        await cluster.until(lambda: cluster.seen("resize published"))
        kinds = [event.kind for event in cluster.events if event.kind.startswith("resize")]
        assert kinds == ["resize planned", "resize fenced", "resize published"]


async def test_malformed_topic_znode_does_not_end_tenure() -> None:
    async with running_cluster() as cluster:
        await cluster.client.create("/brokers/topics/bad", b"{nonsense")
        await cluster.create_topic("good")
        assert cluster.controller.epoch == 1


async def test_bug_ends_tenure_with_log_and_starts_another(caplog: pytest.LogCaptureFixture) -> None:
    async with running_cluster() as cluster:
        runner = cluster.controller._runner
        assert runner is not None
        runner._queue.put_nowait(TimerFired("nobody"))
        await cluster.until(lambda: cluster.active is not None and cluster.controller.epoch == 2)
    assert "unknown timer" in caplog.text


def test_crash_at_exits_hard(tmp_path: Path) -> None:
    script = tmp_path / "crash.py"
    script.write_text(
        "import asyncio\n"
        "from tests.controller.cluster import TestCluster\n"
        "async def main():\n"
        "    cluster = await TestCluster.start(3, crash_at='resize:after-bump:1')\n"
        "    await cluster.create_topic('t')\n"
        "    await cluster.resize('t', 6)\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script)], cwd=root, env={"PYTHONPATH": f"{root}:{root / 'src'}"}, timeout=600
    )
    assert done.returncode == 137


@pytest.mark.zookeeper
async def test_controller_works_with_real_zookeeper(zookeeper_hosts: str) -> None:
    cluster = TestCluster(zookeeper=RealZooKeeper(zookeeper_hosts))
    await cluster.begin(3)
    try:
        first = cluster.controller
        await cluster.create_topic("t", partitions=4)
        assert (await cluster.resize("t", 6)).error_code == 0
        await cluster.add_controller(101)
        await first.session_under_test.close()  # type: ignore[attr-defined]
        await cluster.until(lambda: cluster.controllers[1].active)
        assert (await cluster.resize("t", 3)).error_code == 0
        kept = (await cluster.topic("t")).assignment[0][1]
        rows = [ReassignablePartition(partition_index=0, replicas=[kept])]
        moves = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=rows)])
        moved = await cluster.controller.alter_partition_reassignments(moves)
        assert moved.responses[0].partitions[0].error_code == 0
        state = (await cluster.states("t"))[0]
        assert (state.leader, state.isr, (await cluster.topic("t")).assignment[0]) == (kept, (kept,), (kept,))
        await cluster.brokers[1].die()
        await cluster.until_states("t", lambda states: all(1 not in s.isr or s.isr == (1,) for s in states.values()))
        await cluster.add_broker(1)
        await topic_admin.delete_topic(cluster.client, "t")
        await cluster.until(lambda: cluster.seen("topic deleted"))
        assert await cluster.client.exists(paths.topic("t")) is None
    finally:
        await cluster.stop()


class RealZooKeeper:
    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    async def connect(self) -> ZkSession:
        return await open_kazoo(self.hosts, session_timeout_ms=6000)
