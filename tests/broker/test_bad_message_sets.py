"""Malformed message sets of old producers against a live node.

Damage inside a compressed message is covered by no checksum that was there before; the worst of them are those that
claim to be much. Whatever comes is answered with one of Kafka's codes, on a connection that lives on, and what was
accepted can be read by every old consumer.
"""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.compression import Compression, compress
from anabranch.protocol.records.message_set import (
    OPENED_BYTES_MAX,
    Message,
    build_message,
    build_wrapper,
    iter_headers,
    open_wrapper,
    read_message,
)
from tests.broker.test_bad_input import METADATA_VERSION, RSS_GROWTH_BYTES_MAX, Victim, fuzz
from tests.broker.test_bad_input import victim as victim

TOPIC = "old-victim"
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
REFUSALS = {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}
REFUSALS |= {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.fixture(scope="module", autouse=True)
def old_topic(victim: Victim) -> None:
    """A topic of its own: what is accepted here must not be taken for damage there."""
    from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    while victim.ask("Metadata", METADATA_VERSION, request).topics[0].error_code != ErrorCode.NONE:
        pass


def produce(victim: Victim, version: int, records: bytes) -> int:
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
    )
    response: ProduceResponse = victim.ask("Produce", version, request, victim.witness)
    return response.responses[0].partition_responses[0].error_code


def fetch(victim: Victim, version: int, offset: int, max_bytes: int = 1 << 20) -> tuple[int, int, bytes]:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[partition])]
    )
    response: FetchResponse = victim.ask("Fetch", version, request, victim.witness)
    row = response.responses[0].partitions[0]
    return row.error_code, row.high_watermark, bytes(row.records or b"")


def messages(magic: int) -> list[Message]:
    return [Message(number, magic, 0, 1_700_000_000_000 if magic else -1, b"key", b"value" * 9) for number in range(4)]


def wrapper(content: bytes, magic: int, codec: int, offset: int) -> bytes:
    return build_message(Message(offset, magic, codec, 1_700_000_000_000, None, compress(codec, content)))


def damage(data: bytes, flips: list[tuple[int, int]]) -> bytes:
    damaged = bytearray(data)
    for position, flip in flips:
        damaged[position % len(damaged)] ^= flip
    return bytes(damaged)


def sealed(data: bytes) -> bytes:
    """With checksums that fit again, so that the damage is found by what it means."""
    repaired = bytearray(data)
    position = 0
    while position + 16 < len(repaired):
        end = position + 12 + int.from_bytes(repaired[position + 8 : position + 12], "big", signed=True)
        if not position + 16 < end <= len(repaired):
            break
        repaired[position + 12 : position + 16] = zlib.crc32(repaired[position + 16 : end]).to_bytes(4, "big")
        position = end
    return bytes(repaired)


FLIPS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=4)


@fuzz(300)
@given(
    version=st.integers(0, 2),
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from(CODECS),
    inner=FLIPS,
    outer=FLIPS,
    repaired=st.booleans(),
    cut=st.integers(0, 40),
)
def test_damaged_message_sets_are_answered_with_an_expected_code(
    victim: Victim, version: int, magic: int, codec: int, inner: Any, outer: Any, repaired: bool, cut: int
) -> None:
    content = damage(b"".join(map(build_message, messages(magic))), inner)
    if repaired:
        content = sealed(content)
    if codec:
        content = wrapper(content, magic, codec, offset=3)
    content = damage(content, outer)
    if repaired:
        content = sealed(content)
    assert produce(victim, version, content[: len(content) - cut]) in REFUSALS


@fuzz(150)
@given(version=st.integers(0, 2), head=st.integers(0, 2), rest=st.binary(max_size=200))
def test_random_bytes_with_a_magic_are_answered_with_an_expected_code(
    victim: Victim, version: int, head: int, rest: bytes
) -> None:
    size = max(14, len(rest) + 5)
    records = bytes(8) + size.to_bytes(4, "big") + bytes(4) + bytes((head,)) + rest
    assert produce(victim, version, sealed(records)) in REFUSALS


def test_decompression_bombs_are_refused_without_lasting_memory(victim: Victim) -> None:
    """Many MB of zeros in a request. The allocator may keep the memory of the first ones."""
    bombs = [
        wrapper(bytes((80 if codec == Compression.GZIP else 15) << 20), magic, codec, offset=0)
        for codec in CODECS[1:]
        for magic in (0, 1)
    ]
    for turn in range(4):
        for bomb in bombs:
            assert produce(victim, 2, bomb) in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD)
        if turn == 0:
            assert victim.rss() - victim.rss_bytes < OPENED_BYTES_MAX + RSS_GROWTH_BYTES_MAX
            victim.rss_bytes = victim.rss()
    victim.check()


@fuzz(150)
@given(
    version=st.integers(0, 4),
    offset=st.integers(-3, 500),
    max_bytes=st.sampled_from([-1, 0, 1, 11, 12, 60, 61, 100, 1000, 2**31 - 1]),
)
def test_old_fetches_at_random_offsets_are_answered(victim: Victim, version: int, offset: int, max_bytes: int) -> None:
    code, _, _ = fetch(victim, version, offset, max_bytes)
    assert code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize("version", range(4))
def test_accepted_message_sets_are_readable(victim: Victim, version: int) -> None:
    for magic in (0, 1):
        for codec in CODECS[1:]:
            assert produce(victim, 2, build_wrapper(messages(magic), codec)) == ErrorCode.NONE
    offset, (_, end, _) = 0, fetch(victim, 3, 0)
    while offset < end:
        code, _, data = fetch(victim, version, offset)
        assert code == ErrorCode.NONE
        found = []
        for position, header in iter_headers(data):
            message = read_message(data, position, header)
            found += open_wrapper(message) if message.codec else [message]
        assert found[-1].offset >= offset
        offset = found[-1].offset + 1


def test_node_works_after_all_message_sets(victim: Victim) -> None:
    victim.check()
