"""One response has nodes, replicas, groups and transactions of the same moment."""

from __future__ import annotations

import asyncio
import json
from unittest import mock

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.clients.group_admin import commit_offsets
from anabranch.clock.cluster_clock import ClusterClock
from anabranch.cluster.in_process import Cluster
from anabranch.control import state
from anabranch.dashboard.collectors.cluster_rows import ClusterRows
from anabranch.dashboard.collectors.newest_topics import present_topics
from anabranch.dashboard.state_delta import StateSheet
from anabranch.protocol.topic_partition import TopicPartition
from tests.anabranch.control.conftest import controlled, with_topic
from tests.broker.serving import until


async def test_state_has_nodes_topics_groups_and_transactions() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await with_topic(on)
        servers = on.cluster.bootstrap_servers
        async with Producer(servers, transactional_id="tx") as producer:
            async with producer.transaction():
                await producer.send("t", b"v", partition=1)
            settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
            async with Consumer("t", bootstrap_servers=servers, **settings) as consumer:  # type: ignore[arg-type]
                await consumer.getone()
                await consumer.commit()
                row = state.cluster_state(on.cluster)
        json.dumps(row)
        assert [one["node"] for one in row["nodes"]] == [1, 2, 3]
        assert sum(one["controller"] for one in row["nodes"]) == 1
        topic = next(one for one in row["topics"] if one["topic"] == "t")
        first, second = topic["partitions"]
        assert (first["high_watermark"], second["high_watermark"]) == (0, 2), "a record and the marker"
        assert {one["end"] for one in second["replicas"]} == {2}
        assert sorted(second["isr"]) == [1, 2, 3]
        (group,) = row["groups"]
        assert (group["group"], group["state"], len(group["members"])) == ("g", "Stable", 1)
        read, other = group["offsets"][1], group["offsets"][0]
        assert read == {"topic": "t", "partition": 1, "committed": 1, "end": 2, "lag": 1}
        assert (other["partition"], other["committed"] in (0, None), other["lag"]) == (0, True, 0)
        assert group["lag"] == 1
        (transaction,) = row["transactions"]
        assert (transaction["transactional_id"], transaction["state"]) == ("tx", "CompleteCommit")


async def test_stopped_node_has_a_row_and_its_replicas_no_end_offset() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await with_topic(on, partitions=1)
        down = next(one for one in (1, 2, 3) if one != state.topics(on.cluster)[0]["partitions"][0]["leader"])
        await on.actions.kill(down)
        row = state.node_row(on.cluster, down)
        assert (row["running"], row["port"]) == (False, on.cluster.address(down)[1])
        (partition,) = state.topics(on.cluster)[0]["partitions"]
        ends = {one["node"]: one["end"] for one in partition["replicas"]}
        assert ends[down] == -1 and sorted(ends.values()) == [-1, 0, 0]


@pytest.mark.asyncio(loop_factories=["clock"])
async def test_group_and_transaction_of_a_frozen_coordinator_are_shown_by_its_successor() -> None:
    """The frozen node keeps what it had: waits for the lag of the group ended too early, or never."""
    clock, cluster = ClusterClock.new(), Cluster(3, seed=1)
    assert clock is not None
    async with clock.running(cluster), asyncio.timeout(60), Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await admin.wait_for_topic("t", replicas=3)
        place = TopicPartition("t", 0)
        for number in range(10):
            await commit_offsets(admin.network, f"g{number}", {place: 0})
            async with Producer(cluster.bootstrap_servers, transactional_id=f"tx{number}") as producer:
                await producer.begin_transaction()
                await producer.commit_transaction()
        stale = [row["group"] for row in state.groups(cluster) if row["coordinator"] == 3]
        assert stale and any(row["coordinator"] == 3 for row in state.transactions(cluster))
        clock.run_at(0)
        cluster.freeze_broker(3)
        await clock.advance(60)
        clock.run_at(1)
        async with Admin(cluster.bootstrap_servers.rpartition(",")[0]) as successor:
            for group in stale:
                await commit_offsets(successor.network, group, {place: 7})
        groups, transactions = state.groups(cluster), state.transactions(cluster)
        assert (len(groups), len(transactions)) == (10, 10)
        assert 3 not in {row["coordinator"] for row in (*groups, *transactions)}
        assert all(row["offsets"][0]["committed"] == 7 for row in groups if row["group"] in stale)
        sheet = StateSheet()
        ClusterRows(cluster, lambda kind, **_: None).collect(sheet)
        keys = [f"{kind}{number}" for kind in ("group/g", "transaction/tx") for number in range(10)]
        assert 3 not in {sheet.rows[key]["coordinator"] for key in keys}
        assert {sheet.rows[f"commits/{group}"]["t"]["0"] for group in stale} == {7}


async def test_topics_are_read_once_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each group again, 150 groups of 200 topics held the loop for a quarter of a second."""
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await admin.wait_for_topic("t")
        for number in range(3):
            await commit_offsets(admin.network, f"g{number}", {TopicPartition("t", 0): 0})
        looks = mock.Mock(side_effect=state.newest_image)
        monkeypatch.setattr(state, "newest_image", looks)
        assert [row["offsets"][0]["committed"] for row in state.groups(cluster)] == [0, 0, 0]
        looks.assert_called_once()


@pytest.mark.asyncio(loop_factories=["clock"])
async def test_topics_that_only_a_frozen_node_knows_are_not_shown() -> None:
    """Neither a deleted one, nor the former one of a name that is used again, which had more generations."""
    clock, cluster = ClusterClock.new(), Cluster(3, seed=1)
    assert clock is not None
    elsewhere = {0: [1, 2], 1: [1, 2]}
    async with clock.running(cluster), asyncio.timeout(60), Admin(cluster.bootstrap_servers) as admin:
        topics = [NewTopic(name=name, assignments=elsewhere) for name in ("deleted", "again")]
        await admin.create_topics(topics)
        await admin.create_partitions("again", 1, allow_shrink=True)
        await until(lambda: cluster.nodes[3].services.metadata.image.topics["again"].generation == 1)
        clock.run_at(0)
        cluster.freeze_broker(3)
        await clock.advance(60)
        clock.run_at(1)
        async with Admin(cluster.bootstrap_servers.rpartition(",")[0]) as successor:
            await successor.delete_topics(["deleted", "again"])
            await until(lambda: present_topics(cluster) == {})
            await successor.create_topics([NewTopic(name="again", assignments=elsewhere)])
            await successor.wait_for_topic("again", replicas=2)
        assert cluster.nodes[3].services.metadata.image.topics.keys() >= {"deleted", "again"}
        rows = {row["topic"]: row for row in state.topics(cluster)}
        assert {name: (row["generation"], len(row["partitions"])) for name, row in rows.items()} == {"again": (0, 2)}
        sheet = StateSheet()
        ClusterRows(cluster, lambda kind, **_: None).collect(sheet)
        shown = {key for key in sheet.rows if key.startswith(("topic/", "partition/"))}
        assert shown == {"topic/again", "partition/again/0", "partition/again/1"}


@pytest.mark.asyncio(loop_factories=["clock"])
async def test_frozen_controller_that_was_replaced_is_none() -> None:
    """It still believes so, and that the last resize goes on."""
    clock, cluster = ClusterClock.new(), Cluster(3, seed=1)
    assert clock is not None
    async with clock.running(cluster), asyncio.timeout(60), Admin(cluster.bootstrap_servers) as admin:
        (former,) = (row["node"] for row in state.nodes(cluster) if row["controller"])
        others = [node_id for node_id in cluster.node_ids if node_id != former]
        await admin.create_topics([NewTopic(name="t", assignments={0: others, 1: others})])
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x", partition=1)
        await admin.create_partitions("t", 1, allow_shrink=True)
        sheet, rows = StateSheet(), ClusterRows(cluster, lambda kind, **_: None)
        rows.collect(sheet)
        assert sheet.rows["resize/t"]["draining"] == [1]
        clock.run_at(0)
        cluster.freeze_broker(former)
        await clock.advance(60)
        clock.run_at(1)
        servers = ",".join("{}:{}".format(*cluster.address(one)) for one in others)
        async with Admin(servers) as successor:
            await successor.delete_records({TopicPartition("t", 1): 1})
        clock.run_at(0)
        await clock.advance(600)
        assert len(state.topics(cluster)[0]["partitions"]) == 1, "it was empty, and is removed"
        rows.collect(sheet)
        assert [key for key in sheet.rows if key.startswith("resize/")] == []
        (present,) = (row["node"] for row in state.nodes(cluster) if row["controller"])
        assert present in others
        assert [one for one in cluster.node_ids if sheet.rows[f"node/{one}"]["controller"]] == [present]
