"""Transactional batches in Produce: permitted senders, and the verification by the coordinator (KIP-890 part 1)."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import ReplicaCluster, batch, log_values, replica_cluster, until
from tests.broker.transactions import (
    TRANSACTIONAL_ID,
    coordinate_transactions,
    end,
    marker,
    produce,
    transactional_batch,
)

T0 = ("t", 0)


async def alone(cluster: ReplicaCluster) -> None:
    await cluster.lead(1, replicas=(1,))


async def test_transaction_is_verified_once_per_partition() -> None:
    async with replica_cluster(1) as cluster:
        await alone(cluster)
        coordinator = await coordinate_transactions(cluster, 1, [T0])
        for sequence in range(3):
            row = await produce(cluster, transactional_batch(f"v{sequence}", sequence=sequence))
            assert (row.error_code, row.base_offset) == (0, sequence)
        assert coordinator.questions == [(TRANSACTIONAL_ID, 0, [T0])]
        assert coordinator.asked[0].transactions[0].verify_only
        await end(cluster, marker(True))
        assert (await produce(cluster, transactional_batch("next", sequence=3))).error_code == 0
        assert len(coordinator.questions) == 2, "the next transaction is another question"
        again = await produce(cluster, transactional_batch("next", sequence=3))
        assert (again.error_code, again.base_offset) == (0, 4)
        await end(cluster, marker(True))
        again = await produce(cluster, transactional_batch("next", sequence=3))
        assert (again.error_code, again.base_offset) == (0, 4), "a batch that is here already is no question"
        assert len(coordinator.questions) == 2


async def test_transaction_is_verified_by_a_coordinator_on_another_broker() -> None:
    async with replica_cluster(2) as cluster:
        await alone(cluster)
        coordinator = await coordinate_transactions(cluster, 2, [T0])
        assert (await produce(cluster, transactional_batch("a"))).error_code == 0
        assert coordinator.questions == [(TRANSACTIONAL_ID, 0, [T0])]


@pytest.mark.parametrize(("version", "code"), [(10, "INVALID_TXN_STATE"), (11, "TRANSACTION_ABORTABLE")])
async def test_batch_for_a_partition_outside_the_transaction_is_refused(version: int, code: str) -> None:
    async with replica_cluster(1) as cluster:
        await alone(cluster)
        coordinator = await coordinate_transactions(cluster)
        row = await produce(cluster, transactional_batch("late"), version=version)
        assert ErrorCode(row.error_code).name == code
        assert log_values(cluster.partition(1)) == []
        coordinator.ongoing[TRANSACTIONAL_ID].add(T0)
        assert (await produce(cluster, transactional_batch("in time"), version=version)).error_code == 0


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS"),
        ("NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS"),
        ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
        ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
async def test_coordinator_errors_are_mapped_to_produce_errors(said: str, told: str) -> None:
    async with replica_cluster(1) as cluster:
        await alone(cluster)
        coordinator = await coordinate_transactions(cluster, 1, [T0])
        coordinator.trouble = ErrorCode[said]
        row = await produce(cluster, transactional_batch("a"))
        assert ErrorCode(row.error_code).name == told
        coordinator.trouble = ErrorCode.NONE
        assert (await produce(cluster, transactional_batch("a"))).error_code == 0


async def test_batch_without_a_transaction_coordinator_is_retriable() -> None:
    async with replica_cluster(2) as cluster:
        await alone(cluster)
        row = await produce(cluster, transactional_batch("a"))
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "there is no __transaction_state"
        await coordinate_transactions(cluster, 2, [T0])
        await cluster.kill(2)
        row = await produce(cluster, transactional_batch("a"))
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "its leader is dead, and not yet said to be"
        await cluster.publish()
        row = await produce(cluster, transactional_batch("a"))
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "its leader is said to be dead"
        await coordinate_transactions(cluster, 1, [T0])
        assert (await produce(cluster, transactional_batch("a"))).error_code == 0


async def test_marker_during_verification_refuses_the_batch() -> None:
    """Verified, then aborted before the append: the batch would open a transaction without an end."""
    async with replica_cluster(1) as cluster:
        await alone(cluster)
        coordinator = await coordinate_transactions(cluster, 1, [T0])
        coordinator.hold = asyncio.Event()
        producing = asyncio.create_task(produce(cluster, transactional_batch("late")))
        await until(lambda: len(coordinator.asked) == 1)
        assert (await cluster.produce(1, batch("plain"))).error_code == 0, "others do not wait for it"
        await end(cluster, marker(False))
        coordinator.hold.set()
        assert (await producing).error_code == ErrorCode.INVALID_TXN_STATE
        assert cluster.partition(1).last_stable_offset == 2


async def test_leadership_lost_during_verification_refuses_the_batch() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        coordinator = await coordinate_transactions(cluster, 1, [T0])
        coordinator.hold = asyncio.Event()
        producing = asyncio.create_task(produce(cluster, transactional_batch("late")))
        await until(lambda: len(coordinator.asked) == 1)
        await cluster.lead(2)
        coordinator.hold.set()
        row = await producing
        assert (row.error_code, row.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


async def test_generation_is_checked_before_the_transaction() -> None:
    """K512: a batch of an old generation gets the new one, and its transaction continues."""
    async with replica_cluster(1) as cluster:
        await alone(cluster)
        coordinator = await coordinate_transactions(cluster, 1, [T0])
        await cluster.lead(1, replicas=(1,), generation=1, gen_start=((0, 0), (1, 1)))
        row = await produce(cluster, transactional_batch("old"), generation=0)
        assert (row.error_code, row.generation) == (ErrorCode.INVALID_PARTITION_METADATA, 1)
        assert coordinator.asked == []
        coordinator.hold = asyncio.Event()
        producing = asyncio.create_task(produce(cluster, transactional_batch("overtaken"), generation=1))
        await until(lambda: len(coordinator.asked) == 1)
        await cluster.lead(1, replicas=(1,), generation=2, gen_start=((0, 0), (1, 1), (2, 2)))
        coordinator.hold.set()
        row = await producing
        assert (row.error_code, row.generation) == (ErrorCode.INVALID_PARTITION_METADATA, 2)
        assert (await produce(cluster, transactional_batch("new"), generation=2)).error_code == 0


async def test_transactional_records_need_a_transactional_id() -> None:
    """The whole request is refused, including its non-transactional partitions."""
    async with replica_cluster(1) as cluster:
        await alone(cluster)
        await cluster.lead(1, replicas=(1,), topic="u")
        topics = [("u", batch("plain")), ("t", transactional_batch("a"))]
        request = ProduceRequest(
            acks=1,
            timeout_ms=60_000,
            topic_data=[
                TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
                for name, records in topics
            ],
        )
        response = await cluster.call(cluster[1], request)
        codes = [row.error_code for topic in response.responses for row in topic.partition_responses]
        assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        assert log_values(cluster.partition(1, "u")) == []
        request.acks = 0
        with pytest.raises(ConnectionError):
            await cluster.call(cluster[1], request)  # the connection is the only way to say it


async def test_request_with_batches_of_several_producers_is_refused() -> None:
    async with replica_cluster(1) as cluster:
        await alone(cluster)
        await cluster.lead(1, replicas=(1,), topic="u")
        await coordinate_transactions(cluster, 1, [T0, ("u", 0)])
        request = ProduceRequest(
            transactional_id=TRANSACTIONAL_ID,
            acks=1,
            timeout_ms=60_000,
            topic_data=[
                TopicProduceData(
                    name=name,
                    partition_data=[
                        PartitionProduceData(index=0, records=transactional_batch("a", producer=(producer, 0)))
                    ],
                )
                for name, producer in (("t", 7), ("u", 8))
            ],
        )
        response = await cluster.call(cluster[1], request)
        codes = [row.error_code for topic in response.responses for row in topic.partition_responses]
        assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


async def test_verification_can_be_switched_off() -> None:
    async with replica_cluster(1, transaction_partition_verification_enable=False) as cluster:
        await alone(cluster)
        assert (await produce(cluster, transactional_batch("a"))).error_code == 0


async def test_non_transactional_batches_are_not_verified() -> None:
    async with replica_cluster(1) as cluster:
        await alone(cluster)
        coordinator = await coordinate_transactions(cluster)
        assert (await produce(cluster, batch("a", producer=(7, 0), sequence=0))).error_code == 0
        assert coordinator.asked == []
