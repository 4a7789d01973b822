"""ListOffsets: by position, by time, for consumers and for followers."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import NOW_MS, ReplicaCluster, batch, replica_cluster
from tests.broker.storage.faulty_files import FaultyFile, FaultyFiles
from tests.broker.transactions import coordinate_transactions, end, marker, produce, transactional_batch

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4


async def ask(
    cluster: ReplicaCluster,
    timestamp: int,
    *,
    broker_id: int = 1,
    epoch: int = -1,
    replica_id: int = -1,
    version: int = 7,
    times: int = 1,
    isolation_level: int = 0,
) -> Any:
    partitions = [
        ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp, max_num_offsets=9)
        for _ in range(times)
    ]
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=partitions)],
    )
    response = await cluster.call(cluster[broker_id], request, version=version)
    return response.topics[0].partitions[0]


async def test_offsets_are_listed_by_position_and_timestamp() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        for timestamp in (100, 300, 200):
            await cluster.produce(1, batch("a", "b", timestamp_ms=timestamp))

        async def found(timestamp: int) -> tuple[int, int, int]:
            row = await ask(cluster, timestamp)
            return row.error_code, row.timestamp, row.offset

        assert await found(LATEST) == (0, -1, 6)
        assert await found(EARLIEST) == (0, -1, 0)
        assert await found(MAX_TIMESTAMP) == (0, 300, 2)
        assert await found(0) == (0, 100, 0)
        assert await found(101) == (0, 300, 2)
        assert await found(301) == (0, -1, -1)
        assert (await ask(cluster, 101)).leader_epoch == 0


async def test_unreadable_disk_is_a_storage_error_of_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    async with replica_cluster(0) as cluster:
        await cluster.start(1, FaultyFiles(MemoryFiles()))  # type: ignore[arg-type]
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", timestamp_ms=100))
        monkeypatch.setattr(FaultyFile, "read", broken)
        assert (await ask(cluster, 50)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await ask(cluster, LATEST)).offset == 1


async def test_consumers_see_the_high_watermark_and_followers_the_end() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        await cluster.produce(1, batch("a", timestamp_ms=100), acks=1)
        assert (await ask(cluster, LATEST)).offset == 0
        assert (await ask(cluster, 100)).offset == -1, "not committed, so not found"
        assert (await ask(cluster, LATEST, replica_id=2)).offset == 1
        assert (await ask(cluster, LATEST, replica_id=-2)).offset == 1, "a debugging tool sees the end, too"


async def test_new_leader_without_known_high_watermark_is_offset_not_available() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        await cluster.produce(1, batch("a"), acks=1)
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        assert (await ask(cluster, LATEST)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await ask(cluster, LATEST, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (await ask(cluster, EARLIEST)).error_code == 0
        assert (await ask(cluster, EARLIEST_LOCAL, version=8)).error_code == 0


async def test_new_leader_finds_committed_records_by_timestamp() -> None:
    """Kafka refuses only what it does not find below the high watermark."""
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        assert (await cluster.produce(1, batch("a", timestamp_ms=100))).error_code == 0
        await cluster.kill(2)
        await cluster.produce(1, batch("b", timestamp_ms=200), acks=1)
        await cluster.lead(1, replicas=(1, 2), isr=(1, 2))
        assert (await ask(cluster, LATEST)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await ask(cluster, 200)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        row = await ask(cluster, 50)
        assert (row.error_code, row.timestamp, row.offset) == (0, 100, 0)


async def test_invalid_list_offsets_is_refused() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1)
        await cluster.lead(1)
        assert (await ask(cluster, LATEST, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await ask(cluster, LATEST, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await ask(cluster, LATEST, broker_id=2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        on_a_follower = [(await ask(cluster, LATEST, broker_id=2, epoch=epoch)).error_code for epoch in (0, 1, 2)]
        assert on_a_follower == [
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        ]
        assert (await ask(cluster, MAX_TIMESTAMP, version=6)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await ask(cluster, LATEST, times=2)).error_code == ErrorCode.INVALID_REQUEST


async def test_version_0_lists_offsets_in_descending_order() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        assert (await ask(cluster, LATEST, version=0)).old_style_offsets == [2, 0]
        assert (await ask(cluster, EARLIEST, version=0)).old_style_offsets == [0]
        assert (await ask(cluster, EARLIEST, version=0, times=2)).old_style_offsets == [0], "it never minded"
        cluster.partition(1).leader_epoch_start_offset = 9  # as if just elected: this version tells all the same
        assert (await ask(cluster, LATEST, version=0)).old_style_offsets == [2, 0]
        assert (await ask(cluster, LATEST, version=1)).error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_version_0_lists_base_offsets_of_segments() -> None:
    async with replica_cluster(1, log_segment_bytes=300) as cluster:
        await cluster.lead(1, replicas=(1,))
        for number in range(10):
            await cluster.produce(1, batch("x" * 40, timestamp_ms=100 + number))
        bases = [segment.base_offset for segment in cluster.partition(1).log.segments]
        assert len(bases) > 3
        newest_first = [10, *reversed(bases)]
        assert (await ask(cluster, LATEST, version=0)).old_style_offsets == newest_first
        assert (await ask(cluster, EARLIEST, version=0)).old_style_offsets == [0]
        second = bases[2] - 1 + 100  # when the second segment's last record was written
        assert (await ask(cluster, second, version=0)).old_style_offsets == [bases[1], 0]
        assert (await ask(cluster, 99, version=0)).old_style_offsets == []
        cluster.partition(1).high_watermark = bases[-1] - 1
        assert (await ask(cluster, LATEST, version=0)).old_style_offsets == [bases[-1] - 1, *reversed(bases[:-1])]


async def test_read_committed_offsets_end_at_the_last_stable_offset() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await coordinate_transactions(cluster, 1, [("t", 0)])
        await cluster.produce(1, batch("before"))
        await produce(cluster, transactional_batch("open"))
        await cluster.produce(1, batch("later", timestamp_ms=NOW_MS + 5))
        for level, latest, later in ((0, 3, (NOW_MS + 5, 2)), (1, 1, (-1, -1))):
            row = await ask(cluster, LATEST, isolation_level=level)
            assert (row.offset, row.error_code) == (latest, 0)
            row = await ask(cluster, NOW_MS + 1, isolation_level=level)
            assert (row.timestamp, row.offset, row.error_code) == (*later, 0)
            assert (await ask(cluster, MAX_TIMESTAMP, isolation_level=level)).offset == later[1]
        assert (await ask(cluster, LATEST, isolation_level=1, replica_id=2)).offset == 3, "a follower reads everything"
        await end(cluster, marker(False))
        assert (await ask(cluster, LATEST, isolation_level=1)).offset == 4
        assert (await ask(cluster, LATEST, isolation_level=2)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
