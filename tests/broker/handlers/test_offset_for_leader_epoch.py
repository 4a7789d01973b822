"""OffsetForLeaderEpoch: ends of epochs, which are the boundaries of generations (R7)."""

from __future__ import annotations

import errno

import pytest

from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import batch, replica_cluster
from tests.broker.storage.faulty_files import FaultyFile, FaultyFiles


async def test_generation_boundaries_are_ends_of_leader_epochs() -> None:
    """R7: the request for the end of generation 0 has the epoch before the first of generation 1."""
    async with replica_cluster() as cluster:

        async def end_of(epoch: int, current: int) -> tuple[int, int, int]:
            partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])]
            )
            row = (await cluster.call(cluster[1], request)).topics[0].partitions[0]
            return row.error_code, row.leader_epoch, row.end_offset

        await cluster.lead(1, generation=0, gen_start=((0, 0),))
        await cluster.produce(1, batch("a", "b"), generation=0)
        assert await end_of(0, 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1), "not before the leader knows the bump"
        await cluster.lead(1, generation=1, gen_start=((0, 0), (1, 1)))
        await cluster.produce(1, batch("c"), generation=1)
        assert await end_of(0, 1) == (0, 0, 2)
        assert await end_of(1, 0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await end_of(7, 1) == (0, -1, -1)


async def test_follower_compares_leader_epochs_first() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.lead(1, replicas=(1, 2))

        async def code_for(current: int) -> int:
            partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=0)
            topic = OffsetForLeaderTopic(topic="t", partitions=[partition])
            response = await cluster.call(cluster[2], OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))
            code: int = response.topics[0].partitions[0].error_code
            return code

        assert [await code_for(epoch) for epoch in (-1, 0, 1, 2)] == [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        ]


async def test_unreadable_disk_is_a_storage_error_of_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    async with replica_cluster(0) as cluster:
        await cluster.start(1, FaultyFiles(MemoryFiles()))  # type: ignore[arg-type]
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a"))
        await cluster.lead(1, replicas=(1,))
        monkeypatch.setattr(FaultyFile, "read", broken)
        for deliverable, code in ((False, ErrorCode.NONE), (True, ErrorCode.KAFKA_STORAGE_ERROR)):
            partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
            topic = OffsetForLeaderTopic(topic="t", partitions=[partition])
            partition.deliverable = deliverable
            response = await cluster.call(cluster[1], OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))
            assert response.topics[0].partitions[0].error_code == code
