"""Expensive validation happens before the append, and does not block others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from anabranch.broker.replication.record_validator import needs_yielding
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import HEADER_BYTES, iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.compression import Compression, compress
from anabranch.protocol.records.message_set import OPENED_MESSAGES_MAX, Message, build_message, build_wrapper
from anabranch.protocol.records.record import iter_records
from anabranch.protocol.varint import encode_varint
from tests.broker.replication.replica_cluster import (
    NOW_MS,
    ReplicaCluster,
    batch,
    fetch_request,
    log_values,
    produce_request,
    replica_cluster,
)
from tests.broker.storage.batches import batch_of
from tests.broker.yields import yields_of

MANY = 200_000
LONG = 8000
"""More records than are validated at once."""


def long_batch(compression: str, count: int = MANY, *, key: bytes | None = b"key") -> bytes:
    builder = BatchBuilder(compression, limit_bytes=1 << 30)
    for _ in range(count):
        builder.append(key, b"value", timestamp_ms=NOW_MS)
    return builder.build()


async def configure(cluster: ReplicaCluster, config: str) -> None:
    await cluster.session.create(
        "/config/topics/t", b'{"version":1,"config":{%s}}' % config.encode(), make_parents=True
    )


async def test_validation_of_a_long_batch_does_not_block_the_loop() -> None:
    """No loop iteration takes more than a small part of the total time."""
    records = long_batch("zstd")
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        async with watched_loop() as turns:
            row = await cluster.produce(1, records)
            assert longest_s(turns) * 5 < turns[-1] - turns[0]
        assert (row.error_code, row.base_offset) == (0, 0)
        assert cluster.partition(1).log.log_end_offset == MANY


@pytest.mark.parametrize(("records", "headers"), [(1, 400_000), (100, 4000), (10_000, 40)])
async def test_validation_of_many_headers_does_not_block_the_loop(records: int, headers: int) -> None:
    content = b"".join(record_with(index, headers) for index in range(records))
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        async with watched_loop() as turns:
            row = await cluster.produce(1, batch_of(content, records))
            assert longest_s(turns) * 5 < turns[-1] - turns[0]
        assert (row.error_code, row.base_offset) == (0, 0)


@contextlib.asynccontextmanager
async def watched_loop() -> AsyncIterator[list[float]]:
    """The processor time of the loop's thread at each of its turns."""
    turns = [time.thread_time()]

    async def tick() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(time.thread_time())

    ticking = asyncio.create_task(tick())
    try:
        yield turns
    finally:
        ticking.cancel()


def longest_s(turns: list[float]) -> float:
    return max(after - before for before, after in pairwise(turns))


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_readers_of_stored_records_do_not_read_headers(compression: str) -> None:
    records = batch_of(record_with(0, 450_000), 1, compression)
    started_s = time.thread_time()
    assert len(list(iter_records(records))) == 1
    read_s = time.thread_time() - started_s
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, records)).error_code == 0
        started_s = time.thread_time()
        assert (await offsets(cluster, NOW_MS)).offset == 0
        row = await cluster.fetch(1, 0, version=2)
        assert time.thread_time() - started_s < read_s / 2
        assert (row.error_code, len(row.records) < 200) == (0, True)


@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_search_by_time_in_a_long_batch_does_not_block_the_loop(compression: str) -> None:
    builder = BatchBuilder(compression, limit_bytes=1 << 30)
    for number in range(MANY // 4):
        builder.append(b"key", bytes(number % 7), timestamp_ms=NOW_MS + number)
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, builder.build())).error_code == 0
        async with watched_loop() as turns:
            assert (await offsets(cluster, NOW_MS + MANY // 4 - 1)).offset == MANY // 4 - 1
            assert longest_s(turns) * 4 < turns[-1] - turns[0]


async def test_conversion_of_many_records_does_not_block_the_loop() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, long_batch("none", 50_000))).error_code == 0
        async with watched_loop() as turns:
            row = await cluster.fetch(1, 0, version=2, max_bytes=1 << 30)
            assert row.error_code == 0
            assert row.records
            assert longest_s(turns) < 0.1
            assert len(turns) > 20


async def test_batch_with_too_many_records_is_not_down_converted() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, long_batch("lz4", OPENED_MESSAGES_MAX + 1))).error_code == 0
        assert (await cluster.fetch(1, 0, version=2, max_bytes=1 << 30)).error_code == ErrorCode.CORRUPT_MESSAGE


async def offsets(cluster: ReplicaCluster, timestamp_ms: int) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    return (await cluster.call(cluster[1], request, version=7)).topics[0].partitions[0]


def record_with(offset_delta: int, headers: int) -> bytes:
    """A record with the smallest headers there are."""
    body = b"\0\0" + encode_varint(offset_delta) + b"\1\1" + encode_varint(headers) + bytes(2 * headers)
    return encode_varint(len(body)) + body


async def test_many_short_batches_are_validated_in_steps() -> None:
    """A batch of one record takes as long as several records of a long batch."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        request = produce_request(batch("a"))
        request.topic_data[0].partition_data = [
            PartitionProduceData(index=0, records=batch("a")) for _ in range(5 * ELEMENTS_PER_YIELD)
        ]
        found, others = await yields_of(cluster[1].replicas.inspector.validate(request, message_sets=False))
        assert len(found) == 5 * ELEMENTS_PER_YIELD and others >= 4


def test_negative_record_count_does_not_hide_a_long_batch() -> None:
    def request_of(*batches: bytes) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
        return ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])

    many = long_batch("none", 5000)
    assert needs_yielding(request_of(many))
    assert needs_yielding(request_of(batch_of(b"", -(2**31)), many))
    assert needs_yielding(request_of(*[long_batch("none", 1000)] * 5))
    assert not needs_yielding(request_of(batch_of(b"", -(2**31)), batch("a")))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_batches_after_a_slow_validation_keep_their_order(compression: str) -> None:
    """Later batches of a connection are appended after a slow one."""
    count = 20_000 if compression == "none" else 60_000
    async with replica_cluster(1, message_max_bytes=4 << 20) as cluster:
        await cluster.lead(1, replicas=(1,))
        connection = await cluster[1].connect()
        requests = [produce_request(one, acks=1) for one in (long_batch(compression, count), batch("a"), batch("b"))]
        answers = await asyncio.gather(*(connection.call(one) for one in requests))
        rows = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, count), (0, count + 1)]
        fetched = await connection.call(fetch_request(count))
        assert len(list(iter_batches(fetched.responses[0].partitions[0].records))) == 2
        await connection.close()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_long_invalid_batches_are_refused(compression: str) -> None:
    sound = long_batch("none", LONG)[HEADER_BYTES:]
    async with replica_cluster(1) as cluster:
        await configure(cluster, '"cleanup.policy":"compact"')
        await cluster.lead(1, replicas=(1,))
        await cluster.lead(1, replicas=(1,), topic="u")
        wrong = batch_of(sound, LONG + 1, compression)
        assert (await cluster.produce(1, wrong)).error_code == ErrorCode.INVALID_RECORD
        damaged = bytearray(batch_of(sound, LONG, compression))
        damaged[-1] ^= 1
        assert (await cluster.produce(1, bytes(damaged))).error_code == ErrorCode.CORRUPT_MESSAGE
        keyless = await cluster.produce(1, long_batch(compression, LONG, key=None))
        assert keyless.error_code == ErrorCode.INVALID_RECORD
        assert len(keyless.record_errors) == 1000
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
                for name, records in (("t", wrong), ("u", batch_of(sound, LONG, compression)), ("v", wrong))
            ],
        )
        answer = await cluster.call(cluster[1], request)
        assert [topic.partition_responses[0].error_code for topic in answer.responses] == [
            ErrorCode.INVALID_RECORD,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (cluster.partition(1).log.log_end_offset, cluster.partition(1, "u").log.log_end_offset) == (0, LONG)


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
async def test_batch_with_excessive_decompressed_size_is_refused(compression: str) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        row = await cluster.produce(1, batch_of(bytes(65 << 20), 1, compression))
        assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "send smaller batches" in (row.error_message or "")


async def test_small_compressed_data_is_decompressed_without_yielding() -> None:
    async with replica_cluster(1) as cluster:
        inspector = cluster[1].replicas.inspector
        at_once = inspector.decompress_content(Compression.ZSTD, compress(Compression.ZSTD, bytes(1 << 17)), 1 << 20)
        with pytest.raises(StopIteration) as done:
            at_once.send(None)
        assert done.value.value == bytes(1 << 17)
        much = asyncio.create_task(
            inspector.decompress_content(Compression.ZSTD, compress(Compression.ZSTD, bytes(8 << 20)), 16 << 20)
        )
        await asyncio.sleep(0)
        assert inspector.busy and not much.done(), "the loop goes on meanwhile"
        assert await much == bytes(8 << 20)


async def test_leadership_lost_during_validation_refuses_the_batch() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        producing = asyncio.create_task(cluster.produce(1, long_batch("zstd"), acks=1))
        inspector = cluster[1].replicas.inspector
        while not inspector.busy:  # noqa: ASYNC110 -- there is no event for that
            await asyncio.sleep(0)
        await cluster.lead(2, replicas=(1, 2))
        assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster.partition(1).log.log_end_offset == 0


@pytest.mark.parametrize("topic_codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
async def test_long_batch_is_recompressed_with_the_topics_codec(topic_codec: str) -> None:
    async with replica_cluster(1) as cluster:
        await configure(cluster, f'"compression.type":"{topic_codec}"')
        await cluster.lead(1, replicas=(1,))
        count = LONG
        for number, compression in enumerate(("none", "lz4", "zstd")):
            row = await cluster.produce(1, long_batch(compression, count))
            assert (row.error_code, row.base_offset) == (0, number * count)
        stored = cluster.partition(1).log.read(0, 1 << 30)
        expected = Compression.NONE if topic_codec == "uncompressed" else Compression.by_name(topic_codec)
        for position, header in iter_batches(stored):
            assert (header.codec, header.record_count) == (expected, count)
            assert len(list(iter_records(stored, position))) == count


async def test_long_message_sets_are_validated() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        messages = [Message(index, 1, 0, NOW_MS, b"key", b"value") for index in range(2000)]
        plain = b"".join(map(build_message, messages))
        wrapped = build_wrapper(messages, Compression.GZIP)
        for records in (plain, wrapped):
            row = await cluster.produce(1, records, version=2)
            assert row.error_code == 0
            assert (await cluster.produce(1, records, version=3)).error_code == ErrorCode.INVALID_RECORD
            broken = records[:-1] + bytes((records[-1] ^ 1,))
            assert (await cluster.produce(1, broken, version=2)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert log_values(cluster.partition(1)) == ["value"] * 4000
