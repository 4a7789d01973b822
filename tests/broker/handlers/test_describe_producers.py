"""DescribeProducers: producer state on every replica."""

from __future__ import annotations

from anabranch.protocol.apis.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import NOW_MS, ReplicaCluster, batch, replica_cluster, until
from tests.broker.transactions import coordinate_transactions, end, marker, produce, transactional_batch


async def describe(cluster: ReplicaCluster, broker_id: int, *topics: str) -> DescribeProducersResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0]) for topic in topics])
    response: DescribeProducersResponse = await cluster.call(cluster[broker_id], request)
    return response


async def test_leader_and_follower_show_open_transactions() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await coordinate_transactions(cluster, 1, [("t", 0)])
        await cluster.produce(1, batch("a", "b", producer=(5, 1), sequence=0))
        await produce(cluster, transactional_batch("c"))
        await end(cluster, marker(True, coordinator_epoch=9))
        await produce(cluster, transactional_batch("d", sequence=1))
        await until(lambda: cluster.partition(2).log.log_end_offset == 5)
        for broker_id in (1, 2):
            (topic,) = (await describe(cluster, broker_id, "t")).topics
            (row,) = topic.partitions
            assert (topic.name, row.partition_index, row.error_code) == ("t", 0, 0)
            idempotent, transactional = sorted(row.active_producers, key=lambda one: one.producer_id)
            assert (idempotent.producer_id, idempotent.producer_epoch, idempotent.last_sequence) == (5, 1, 1)
            assert (idempotent.coordinator_epoch, idempotent.current_txn_start_offset) == (-1, -1)
            assert idempotent.last_timestamp == NOW_MS
            assert (transactional.producer_id, transactional.last_sequence) == (7, 1)
            assert (transactional.coordinator_epoch, transactional.current_txn_start_offset) == (9, 4)


async def test_unknown_partitions_are_refused() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(2, replicas=(2,))
        response = await describe(cluster, 1, "t", "nowhere", "not a name")
        rows = [topic.partitions[0] for topic in response.topics]
        assert [ErrorCode(row.error_code) for row in rows] == [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert all(row.error_message and not row.active_producers for row in rows)
        assert not any(row.error_message.startswith(ErrorCode(row.error_code).name) for row in rows), "clients add it"
