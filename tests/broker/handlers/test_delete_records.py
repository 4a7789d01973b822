"""DeleteRecords: deletion, time of the response, and refusals."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from anabranch.broker.handlers.delete_records import WAITS_AT_ONCE, delete_records
from anabranch.broker.storage.segment import Segment
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import (
    NOW_MS,
    ReplicaCluster,
    batch,
    lead_partitions,
    log_values,
    replica_cluster,
    until,
)
from tests.broker.yields import context, yields_of


async def delete(
    cluster: ReplicaCluster, offset: int, *, timeout_ms: int = 20_000, topic: str = "t", broker_id: int = 1, **more: Any
) -> Any:
    asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=timeout_ms)
    response = await cluster.call(cluster[broker_id], request, **more)
    row = response.topics[0].partitions[0]
    return ErrorCode(row.error_code), row.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_delete_records_advances_the_log_start_of_every_replica(version: int) -> None:
    async with replica_cluster(3, replica_fetch_wait_max_ms=20) as cluster:
        await cluster.lead(1)
        for value in "abcdef":
            await cluster.produce(1, batch(value))
        assert await delete(cluster, 4, version=version) == (ErrorCode.NONE, 4)
        for broker_id in (1, 2, 3):
            assert cluster.partition(broker_id).log.log_start_offset == 4
            assert log_values(cluster.partition(broker_id)) == ["e", "f"]
        assert (await cluster.fetch(1, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await delete(cluster, 2) == (ErrorCode.NONE, 4), "what is gone stays gone"
        assert await delete(cluster, -1) == (ErrorCode.NONE, 6)
        assert (await cluster.produce(1, batch("g"))).base_offset == 6


async def test_records_are_deleted_although_the_disk_keeps_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(segment: Segment) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        log = cluster.partition(1).log
        for value in "abc":
            await cluster.produce(1, batch(value))
            log.roll(log.log_end_offset)
        with monkeypatch.context() as patched:
            patched.setattr(Segment, "delete", refuse)
            assert await delete(cluster, 2) == (ErrorCode.NONE, 2)
            with pytest.raises(OSError, match="read-only"):
                log.apply_retention(NOW_MS)
        assert len(log.segments) == 4
        log.apply_retention(NOW_MS)
        assert (log_values(cluster.partition(1)), len(log.segments)) == (["c"], 2)


async def test_new_log_start_survives_a_restart() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        for value in "abc":
            await cluster.produce(1, batch(value))
        await delete(cluster, 2)
        cluster[1].replicas.housekeeping.checkpoint()
        await cluster.restart(1)
        await cluster.lead(1, replicas=(1,))
        assert log_values(cluster.partition(1)) == ["c"]


async def test_delete_records_waits_for_live_followers_only() -> None:
    async with replica_cluster(2, replica_fetch_wait_max_ms=20) as cluster:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        await cluster.produce(1, batch("a", "b"), acks=1)
        assert await delete(cluster, 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1), "not committed yet"
        cluster.partition(1).high_watermark = 2
        assert await delete(cluster, 1, timeout_ms=30) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        waiting = asyncio.create_task(delete(cluster, 1))
        await until(lambda: len(cluster[1].replicas.deletions) == 1)
        await cluster.tell("t", 0, only=(2,))
        assert await waiting == (ErrorCode.NONE, 1)
        await cluster.kill(2)
        await cluster.publish()
        assert await delete(cluster, 2) == (ErrorCode.NONE, 2)


async def test_pending_delete_records_of_a_resigning_leader_is_refused() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        await cluster.produce(1, batch("a"), acks=1)
        cluster.partition(1).high_watermark = 1
        waiting = asyncio.create_task(delete(cluster, 1))
        await until(lambda: len(cluster[1].replicas.deletions) == 1)
        await cluster.lead(2, replicas=(1, 2))
        assert await waiting == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_invalid_delete_records_is_refused() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("a"))
        assert await delete(cluster, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(cluster, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(cluster, 1, broker_id=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await delete(cluster, 1, topic="u") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await delete(cluster, 1, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        assert cluster.partition(1).log.log_start_offset == 0


async def test_delete_records_of_a_compacted_topic_is_refused() -> None:
    async with replica_cluster(1, log_cleanup_policy="compact") as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a"))
        assert await delete(cluster, 1) == (ErrorCode.POLICY_VIOLATION, -1)


async def test_delete_records_of_many_partitions_yields_and_waits_for_each() -> None:
    async with replica_cluster(1) as cluster:
        lead_partitions(cluster, range(3 * WAITS_AT_ONCE), 1, 1, [1, 2])  # broker 2 is missing, so not waited for
        request = DeleteRecordsRequest(
            timeout_ms=20_000,
            topics=[
                DeleteRecordsTopic(
                    name="t",
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=0) for index in range(3 * WAITS_AT_ONCE)
                    ],
                )
            ],
        )
        response, others = await yields_of(delete_records(context(cluster[1].services, 2), request))
        assert {(row.error_code, row.low_watermark) for row in response.topics[0].partitions} == {(0, 0)}
        assert others >= 3 * WAITS_AT_ONCE // ELEMENTS_PER_YIELD + 2, "while it deletes, and between the waits"
