"""A cluster with unreadable batches of older versions serves and replicates them."""

from __future__ import annotations

import pytest

from anabranch.broker.storage.log_append import append_as_follower
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import NOW_MS, batch, replica_cluster, until
from tests.broker.storage.unreadable import FAR_OFFSETS, FAR_TIMESTAMPS, UNREADABLE, with_max_timestamp
from tests.protocol.stored_batch import stored_at

ALL = {**UNREADABLE, "timestamps of 65 bits": FAR_TIMESTAMPS, "an offset far away": FAR_OFFSETS}


@pytest.mark.parametrize("records", ALL.values(), ids=ALL.keys())
async def test_unreadable_batch_does_not_disturb_replication_or_other_batches(records: bytes) -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("before"))
        log = cluster.partition(1).log
        append_as_follower(log, stored_at(with_max_timestamp(records, NOW_MS + 1), 1))
        row = await cluster.produce(1, batch("after"))
        assert row.error_code == 0
        follower = cluster.partition(2).log
        await until(lambda: follower.log_end_offset == log.log_end_offset)
        assert bytes(follower.read(0, 1 << 20)) == bytes(log.read(0, 1 << 20))
        for version in range(12):
            expected = {ErrorCode.NONE}
            if version < 4:
                expected = {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
            for offset in (0, 1, row.base_offset):
                assert (await cluster.fetch(1, offset, version=version)).error_code in expected
        for timestamp in (-3, -2, -1, 0, NOW_MS, NOW_MS + 1):
            request = ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
                    )
                ],
            )
            answer = await cluster.call(cluster[1], request, version=7)
            assert answer.topics[0].partitions[0].error_code == 0
        await cluster.lead(2, replicas=(1, 2))
        assert (await cluster.produce(2, batch("later"))).error_code == 0
