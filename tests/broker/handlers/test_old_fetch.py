"""Fetch v0 to v9: message sets instead of batches, and their limits."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from anabranch.broker.handlers.old_fetch import INCOMPLETE, convert_batches
from anabranch.broker.storage.segments import Segments
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.records.message_set import Message, check_crc, iter_headers, open_wrapper, read_message
from anabranch.protocol.records.record import iter_records
from tests.broker.replication.replica_cluster import NOW_MS, batch, replica_cluster, values
from tests.broker.storage.unreadable import FAR_TIMESTAMPS, UNREADABLE
from tests.protocol.stored_batch import stored_at

OLD_CODECS = ["none", "gzip", "snappy", "lz4"]


def a_batch(compression: str = "none", records: int = 3, *, value: bytes = b"value", **more: Any) -> bytes:
    builder = BatchBuilder(compression, limit_bytes=1 << 20)
    for number in range(records):
        builder.append(b"%d" % number, value, [("name", b"header")], NOW_MS + number)
    return builder.build(**more)


def messages_in(data: Any) -> list[Message]:
    """What an old consumer reads; a message that is not all there is overlooked."""
    data, seen = bytes(data), []
    for position, header in iter_headers(data):
        assert check_crc(data, position, header)
        message = read_message(data, position, header)
        seen += open_wrapper(message) if message.codec else [message]
    return seen


@pytest.mark.parametrize("compression", OLD_CODECS)
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
async def test_batches_are_down_converted(version: int, magic: int, compression: str) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        for _ in range(2):
            await cluster.produce(1, a_batch(compression))
        seen: list[Message] = []
        while len(seen) < 6:  # an answer ends where its messages would take more bytes than the batches
            row = await cluster.fetch(1, len(seen), version=version)
            assert (row.error_code, row.high_watermark) == (0, 6)
            found = messages_in(row.records)
            assert found, "an answer with records gets on"
            seen += found
        assert [(one.offset, one.magic, one.key, one.timestamp_ms) for one in seen] == [
            (number, magic, b"%d" % (number % 3), NOW_MS + number % 3 if magic else -1) for number in range(6)
        ]


async def test_fetch_from_the_middle_of_a_batch_is_down_converted() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, a_batch())
        await cluster.produce(1, a_batch("gzip"))
        assert [one.offset for one in messages_in((await cluster.fetch(1, 1, version=3)).records)] == [1, 2, 3, 4, 5]
        # a compressed batch stays whole
        assert [one.offset for one in messages_in((await cluster.fetch(1, 4, version=3)).records)] == [3, 4, 5]
        assert (await cluster.fetch(1, 6, version=3)).records == b""


async def test_zstd_batch_ends_or_fails_a_down_converted_fetch() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        for compression in ("gzip", "zstd"):
            await cluster.produce(1, a_batch(compression))
        row = await cluster.fetch(1, 0, version=3)
        assert (row.error_code, [one.offset for one in messages_in(row.records)]) == (0, [0, 1, 2])
        row = await cluster.fetch(1, 3, version=3)
        assert (row.error_code, row.high_watermark) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
        assert (await cluster.fetch(1, 3, version=4)).error_code == 0, "the producer's choice is passed on"


@pytest.mark.parametrize(("version", "code"), [(3, 76), (4, 76), (9, 76), (10, 0), (17, 0)])
async def test_zstd_topic_is_refused_before_fetch_v10(version: int, code: int) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.session.create(
            "/config/topics/t", b'{"version":1,"config":{"compression.type":"zstd"}}', make_parents=True
        )
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a"))
        row = await cluster.fetch(1, 0, version=version)
        assert row.error_code == code
        assert values(row.records or b"") == ([] if code else ["a"])


@pytest.mark.parametrize(("version", "code"), [(0, 35), (3, 35), (4, 0)])
async def test_disabled_down_conversion_refuses_old_fetches(version: int, code: int) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.session.create(
            "/config/topics/t", b'{"version":1,"config":{"message.downconversion.enable":"false"}}', make_parents=True
        )
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.fetch(1, 0, version=version)).error_code == code, "even when there is nothing to convert"
        await cluster.produce(1, batch("a"))
        assert (await cluster.fetch(1, 0, version=version)).error_code == code


async def test_other_errors_are_unchanged_in_old_versions() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.fetch(1, 9, version=0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        unknown = await cluster.fetch(1, 0, version=0, topic="nowhere")
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("version", "code"), [(3, 6), (5, 6), (6, 56)])
async def test_storage_error_is_not_leader_in_the_oldest_versions(
    version: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a"))

        def read(*_: Any) -> bytes:
            raise OSError(errno.EIO, "the disk is gone")

        monkeypatch.setattr(Segments, "read", read)
        assert (await cluster.fetch(1, 0, version=version)).error_code == code


@pytest.mark.parametrize(("version", "found"), [(2, []), (3, [0, 1, 2])])
async def test_size_limit_is_strict_before_v3(version: int, found: list[int]) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, a_batch())
        row = await cluster.fetch(1, 0, version=version, max_bytes=20)
        assert (row.error_code, [one.offset for one in messages_in(row.records)]) == (0, found)


async def test_control_batches_alone_are_converted_to_a_partial_message() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, a_batch())
        marker = build_end_transaction(
            commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        cluster[1].replicas.append_local(cluster.partition(1), marker, acks=1, generation=None, origin="coordinator")
        row = await cluster.fetch(1, 0, version=3)
        assert [one.offset for one in messages_in(row.records)] == [0, 1, 2]
        row = await cluster.fetch(1, 3, version=3)
        assert (row.error_code, row.records) == (0, INCOMPLETE)
        assert messages_in(row.records) == []


async def all_in(records: bytes, **more: Any) -> list[int]:
    return [one.offset for one in messages_in(await convert_batches(records, 1, **more))]


async def test_down_converted_size_is_limited_except_for_the_first_batch() -> None:
    async with replica_cluster(1):
        tiny = a_batch(records=100, value=b"")  # many times larger as messages
        assert len(await convert_batches(tiny, 1, 0)) > 1.5 * len(tiny)
        assert await all_in(tiny, first_offset=0) == list(range(100))
        several = b"".join(stored_at(tiny, 100 * number) for number in range(10))
        found = await convert_batches(several, 1, 0)
        assert len(found) <= len(several)
        offsets = [one.offset for one in messages_in(found)]
        assert offsets == list(range(len(offsets))), "up to the last message that fits"
        assert len(several) - len(found) < 40


async def test_unreadable_batch_ends_the_response() -> None:
    async with replica_cluster(1):
        good, bad = a_batch(value=b"v" * 500), bytearray(stored_at(a_batch(), 3))
        bad[61] ^= 0x40
        assert await all_in(good + bytes(bad), first_offset=0) == [0, 1, 2]
        with pytest.raises(KafkaError) as refusal:
            await convert_batches(bytes(bad), 1, 0)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
        for unreadable in (FAR_TIMESTAMPS, UNREADABLE["offsets beyond the batch"]):
            with pytest.raises(KafkaError) as refusal:
                await convert_batches(stored_at(unreadable, 3), 1, 0)
            assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
async def test_message_sets_are_converted_up_and_down(version: int, magic: int) -> None:
    """Every pair of formats: up-conversion of message sets, and down-conversion."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        row = await cluster.produce(1, a_batch())
        stored = (await cluster.fetch(1, 0)).records
        down = await convert_batches(bytes(stored), magic, 0)
        row = await cluster.produce(1, down, version=2 if magic else version)
        assert (row.error_code, row.base_offset) == (0, 3)
        assert [one.value for one in iter_records(bytes((await cluster.fetch(1, 3)).records or b""))] == [b"value"] * 3
        row = await cluster.fetch(1, 3, version=version)
        assert [(one.offset, one.key) for one in messages_in(row.records)] == [(3, b"0"), (4, b"1"), (5, b"2")]
