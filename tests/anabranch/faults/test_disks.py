"""A full disk, and one that does not flush, have the same effects as in Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import ErrorCode
from tests.broker.serving import until
from tests.broker.storage.batches import batch


async def produced(cluster: Cluster, connection: Connection) -> int:
    partition = PartitionProduceData(index=0, records=batch())
    topic = TopicProduceData(name="t", partition_data=[partition])
    answered = await connection.call(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), version=9)
    return int(answered.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_full_disk_refuses_appends_until_space_is_freed(on_disk: bool, tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60),
        Cluster(1, seed=1, data_dir=tmp_path / "data" if on_disk else None) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        connection = await Connection.open(*cluster.address(1), client_id="app")
        assert await produced(cluster, connection) == 0
        rule = cluster.faults.add(disk="full", brokers=1)
        assert await produced(cluster, connection) == ErrorCode.KAFKA_STORAGE_ERROR
        assert rule.hits >= 1
        cluster.faults.remove(rule.rule.name)
        assert await produced(cluster, connection) == 0
        assert all(files.before_write is None for files in cluster.nodes[1].files_by_path.values())  # type: ignore[attr-defined]
        await connection.close()


async def test_replica_with_failing_flush_goes_offline(caplog: pytest.LogCaptureFixture) -> None:
    properties = {"log.flush.interval.messages": "1", "default.replication.factor": "2"}
    async with (
        asyncio.timeout(60),
        Cluster(2, seed=1, properties=properties) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await admin.wait_for_topic("t", replicas=2)
        leader = (await admin.describe_topic("t")).partitions[0].leader
        rule = cluster.faults.add(disk="flush", brokers=leader, times=1)
        heard = []
        cluster.faults.on_hit(lambda armed, node_id, what: heard.append((node_id, what)))
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x")
        assert rule.hits == 1
        image = cluster.nodes[3 - leader].services.metadata
        await until(lambda: image.image.topics["t"].partitions[0].leader == 3 - leader)
        assert heard[0][0] == leader and (heard[0][1].kind, heard[0][1].detail) == ("disk", "flush")  # type: ignore[union-attr]
