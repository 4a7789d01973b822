"""Replicas with lost data or a failed disk: their responses to the controller."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from anabranch.broker.replication import lost_data_check
from anabranch.broker.replication.partition import Partition, Role
from anabranch.broker.storage.durability import Durability
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import HEADER_BYTES
from tests.broker.replication.partitions import hosted, state_of
from tests.broker.replication.replica_cluster import ReplicaCluster, batch, log_values, replica_cluster, until

LOG = f"t-0/{0:020d}.log"
VALUES = [f"{number}" for number in range(6)]


async def produced(cluster: ReplicaCluster) -> None:
    for value in VALUES:
        assert (await cluster.produce(1, batch(value))).error_code == 0
    await until(lambda: all(len(log_values(cluster.partition(one))) == len(VALUES) for one in (1, 2, 3)))


async def damaged(cluster: ReplicaCluster, broker_id: int) -> None:
    """The broker is killed and back, with a flipped bit in what it has first of all."""
    files = await cluster.kill(broker_id)
    content = bytearray(files.read_file(LOG) or b"")
    content[HEADER_BYTES] ^= 1
    files.write_file(LOG, bytes(content))
    await cluster.start(broker_id, files)


async def test_replica_with_lost_records_refuses_to_lead_while_others_are_in_sync() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        await produced(cluster)
        await damaged(cluster, 1)
        assert (await cluster.tell("t", 0))[1] is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster[1].replicas.replica("t", 0) is None, "it is no leader, not even for itself"
        await cluster.lead(2, isr=(2, 3))
        await until(lambda: log_values(cluster.partition(1)) == VALUES)
        assert cluster.partition(1).log.durability.reached == 0
        await until(lambda: sorted(cluster.assigned["t", 0].isr) == [1, 2, 3])
        await cluster.lead(1)
        assert cluster.partition(1).role is Role.LEADER
        assert all(log_values(cluster.partition(one)) == VALUES for one in (1, 2, 3))


async def test_follower_with_lost_records_reports_the_loss() -> None:
    """It follows immediately, and reports the loss for every partition that has it in the ISR."""
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        await produced(cluster)
        await damaged(cluster, 3)
        for _ in range(2):  # the second time it is no news
            assert (await cluster.tell("t", 0, only=[3])) == {3: ErrorCode.KAFKA_STORAGE_ERROR}
            assert cluster.partition(3).role is Role.FOLLOWER
        await cluster.lead(1, isr=(1, 2))
        assert (await cluster.tell("t", 0, only=[3])) == {3: ErrorCode.STALE_CONTROLLER_EPOCH}
        await until(lambda: log_values(cluster.partition(3)) == VALUES)


async def test_only_in_sync_replica_leads_despite_lost_records(caplog: pytest.LogCaptureFixture) -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        await produced(cluster)
        await damaged(cluster, 1)
        await cluster.lead(1, isr=(1,))
        assert cluster.partition(1).is_leader and cluster.partition(1).log.durability.reached == 0
        cluster[1].replicas.housekeeping.checkpoint()
        assert cluster[1].replicas.logs.home(("t", 0)).lost_ends.offsets == {}
    assert "lost records after offset 1, but stays in sync" in caplog.text


async def test_leader_with_failed_flush_resigns() -> None:
    """It sends an AlterPartition without itself; afterwards it refuses to lead."""
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        await produced(cluster)
        fail(cluster.partition(1))
        await until(lambda: [2, 3] in [members(one) for one in cluster.proposals])
        await cluster.lead(2, isr=(2, 3))
        assert not cluster[1].replicas.fetchers._by_leader, "it does not fetch, or it would be back while it is idle"
        assert (await cluster.produce(2, batch("6"))).error_code == 0
        await until(lambda: log_values(cluster.partition(3)) == [*VALUES, "6"])
        assert log_values(cluster.partition(1)) == VALUES
        assert sorted(cluster.assigned["t", 0].isr) == [2, 3]
        await cluster.lead(1, isr=(1, 2, 3), only={1})
        assert (await cluster.tell("t", 0, only=[1])) == {1: ErrorCode.KAFKA_STORAGE_ERROR}
        assert cluster.partition(1).role is Role.FOLLOWER
        await cluster.lead(1, isr=(1,), only={1})
        assert cluster.partition(1).is_leader, "alone it serves what it has"


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ({}, ErrorCode.KAFKA_STORAGE_ERROR),
        ({"is_new": True}, ErrorCode.NONE),
        ({"log_start_offset": 5}, ErrorCode.NONE),
    ],
    ids=["the same one", "a new partition", "a later life of its index"],
)
def test_checkpoint_of_a_deleted_log_is_no_loss(more: dict[str, Any], answer: ErrorCode) -> None:
    """A checkpoint may outlive its log."""
    partition, row = hosted(), state_of(1, 0, (1, 2), replicas=[1, 2], **more)
    partition.log.durability.reached = 9
    assert lost_data_check.check_lost_data(partition, row, 1, ErrorCode.NONE) is answer


def members(request: AlterPartitionRequest) -> list[int]:
    return [one.broker_id for one in request.topics[0].partitions[0].new_isr_with_epochs]


def fail(partition: Partition) -> None:
    """A flush of the partition's log meets a bad sector."""

    def flush() -> None:
        raise OSError(errno.EIO, "input/output error")

    with pytest.raises(KafkaError):
        Durability.attempt(partition.log.durability, flush)
