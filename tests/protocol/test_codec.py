"""The generated codecs against the construct reference, for every message and version, and against bad bytes."""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.protocol import codec, compiler, layout
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import api_of
from anabranch.protocol.wire import ZERO_UUID, EncodedElements, Kind, fields_of
from tests.cases import examples, for_each
from tests.protocol.messages import MESSAGES, VERSIONS, as_received, as_sent, layout_versions, values_of

UNKNOWN_TAGS = {7000: b"", 7001: b"\x01\x02\x03", 300_000: bytes(200)}


def name(value: Any) -> str | None:
    return value.__name__ if isinstance(value, type) else None


@pytest.mark.parametrize("message", MESSAGES, ids=name)
@settings(max_examples=examples(8, costly=24))
@given(data=st.data())
def test_generated_codec_equals_the_reference_at_every_layout(message: type[Any], data: st.DataObject) -> None:
    value = data.draw(values_of(message))
    cut = data.draw(st.floats(0, 1, exclude_max=True))
    for version in layout_versions(message):
        sent = as_sent(value, version)
        wire = layout.encode(sent, version)
        assert codec.encode(sent, version) == wire
        assert b"".join(codec.encode_chunks(sent, version)) == wire
        received = as_received(sent, version)
        assert codec.decode(message, version, b"\xee" + wire, 1) == (received, len(wire) + 1)
        assert layout.decode(message, version, wire) == (received, len(wire))
        if wire:
            with pytest.raises(DecodeError):
                codec.decode(message, version, wire[: int(cut * len(wire))])


@for_each(MESSAGES)
def test_versions_of_one_layout_have_the_same_codec(message: type[Any]) -> None:
    layouts = layout_versions(message)
    for version in range(api_of(message).last_version + 1):
        first = max(one for one in layouts if one <= version)
        assert compiler.source_of(message, version) == compiler.source_of(message, first)


@pytest.mark.parametrize("message", [m for m in MESSAGES if api_of(m).flexible_from is not None], ids=name)
@settings(max_examples=examples(4, costly=12))
@given(data=st.data())
def test_unknown_tags_are_skipped_in_every_struct(message: type[Any], data: st.DataObject) -> None:
    api = api_of(message)
    sent = as_sent(data.draw(values_of(message)), api.last_version)
    wire = layout.encode(sent, api.last_version, extra_tags=UNKNOWN_TAGS)
    assert len(wire) > len(codec.encode(sent, api.last_version)) + 200
    received, end = codec.decode(message, api.last_version, wire)
    assert (received, end) == (as_received(sent, api.last_version), len(wire))


@for_each(VERSIONS)
def test_random_bytes_decode_or_raise_decode_error(message: type[Any], version: int) -> None:
    noise = (f"{message.__name__}{version}".encode() * 20)[:200]
    for buffer in (noise, bytes(200), b"\xff" * 200, bytes(range(200)), b"\x01" * 200, b"\x80" * 200):
        for start in (0, 50, 150):
            try:
                codec.decode(message, version, buffer, start)
            except DecodeError as error:
                assert error.position is not None and start <= error.position <= len(buffer)


def a_fetch(partitions: int = 3) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic="flights",
                partitions=[
                    FetchPartition(partition=index, fetch_offset=100, partition_max_bytes=1 << 20)
                    for index in range(partitions)
                ],
                undeleted_partition_count=4,
            )
        ],
        rack_id="a",
    )


@pytest.mark.parametrize("version", range(18))
def test_every_truncation_is_refused(version: int) -> None:
    wire = codec.encode(a_fetch(), version)
    for size in range(len(wire)):
        with pytest.raises(DecodeError):
            codec.decode(FetchRequest, version, wire[:size])


def test_error_names_the_field_and_shows_the_bytes() -> None:
    wire = codec.encode(a_fetch(), 12)
    at = wire.index((2).to_bytes(4, "big") + b"\xff\xff\xff\xff" + (100).to_bytes(8, "big"))
    # the count is honest, so the cut is only noticed inside of the last partition, whose tags claim to be there
    broken = wire[: at + 32] + b"\x01\x07\x7f"
    with pytest.raises(DecodeError) as caught:
        codec.decode(FetchRequest, 12, broken)
    assert caught.value.path == "topics[0].partitions[2]"
    assert "tag 7 of 127 bytes with 0 bytes left" in str(caught.value)
    assert "01 07 7f" in str(caught.value)


@pytest.mark.parametrize(
    ("cls", "version", "wire", "path", "reason"),
    [
        (MetadataRequest, 0, "ffffffff", "topics", "null in a field that is not nullable"),
        (MetadataRequest, 4, "00000001ffff00", "topics[0].name", "null in a field that is not nullable"),
        (MetadataRequest, 9, "0200", "topics", "1 elements cannot fit"),
        (MetadataRequest, 9, "020361620001", "include_cluster_authorized_operations", "ends too early"),
        (MetadataRequest, 9, "02000000000000", "topics[0].name", "null in a field that is not nullable"),
        (DescribeGroupsRequest, 0, "00000002000161000bff", "groups[1]", "length 11 with 1 bytes left"),
        (DescribeGroupsRequest, 0, "000000010002c328", "groups[0]", "not UTF-8"),
        (DescribeGroupsRequest, 5, "02ffff0361", "groups[0]", "text of 65534 bytes"),
        (DescribeGroupsRequest, 5, "ffffffffff7f", "groups", "more than 32 bits"),
        (DescribeGroupsRequest, 5, "01000203000200", "", "tag 2 after tag 3"),
        (ProduceRequest, 3, "ffff0001000003e8000000010001740000000100000000000000ff", "records", "length 255"),
    ],
)
def test_malformed_field_is_refused_with_its_path(
    cls: type[Any], version: int, wire: str, path: str, reason: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        codec.decode(cls, version, bytes.fromhex(wire))
    assert caught.value.path.endswith(path)
    assert reason in str(caught.value)


@pytest.mark.parametrize("size", ["03", "05"], ids=["too small", "too large"])
def test_tagged_value_must_fill_its_declared_size(size: str) -> None:
    wire = codec.encode(a_fetch(0), 12)
    assert wire.count(bytes.fromhex("e2130400000004")) == 1
    broken = wire.replace(bytes.fromhex("e21304"), bytes.fromhex("e213" + size))
    with pytest.raises(DecodeError, match=r"topics\[0\]\.undeleted_partition_count: tag 2530"):
        codec.decode(FetchRequest, 12, broken + bytes(4))


@for_each(VERSIONS)
def test_count_beyond_the_frame_is_refused_before_allocation(message: type[Any], version: int) -> None:
    hostile = [b"\x7f\xff\xff\xff" * 5, b"\xff\xff\xff\xff\x07" * 4, b"\x00" * 6 + b"\x7f\xff\xff\xff" * 4]
    codec.decode(message, version, codec.encode(as_received(smallest(message), version), version))  # compiles
    tracemalloc.start()
    try:
        for buffer in hostile:
            try:
                codec.decode(message, version, buffer)
            except DecodeError:
                continue
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def smallest(message: type[Any]) -> Any:
    zero = {Kind.TEXT: "", Kind.BYTES: b"", Kind.RECORDS: b"", Kind.UUID: ZERO_UUID}
    return message(
        **{
            field.name: [] if field.is_array else zero.get(field.kind, 0)
            for field in fields_of(message)
            if field.default is dataclasses.MISSING
        }
    )


def test_records_are_neither_copied_by_encode_nor_by_decode() -> None:
    records = memoryview(bytearray(5000))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    chunks = codec.encode_chunks(request, 9)
    assert any(chunk is records for chunk in chunks)
    wire = b"".join(chunks)
    decoded, _ = codec.decode(ProduceRequest, 9, wire)
    taken = decoded.topic_data[0].partition_data[0].records
    assert isinstance(taken, memoryview) and taken.obj is wire


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_type_is_decoded(kind: Any) -> None:
    wire = codec.encode(a_fetch(), 15)
    assert codec.decode(FetchRequest, 15, kind(wire))[0] == codec.decode(FetchRequest, 15, wire)[0]


def test_defaults_of_decoded_messages_are_not_shared() -> None:
    wire = codec.encode(a_fetch(0), 4)
    one, _ = codec.decode(FetchRequest, 4, wire)
    two, _ = codec.decode(FetchRequest, 4, wire)
    one.forgotten_topics_data.append("x")
    one.replica_state.replica_id = 5
    assert two.forgotten_topics_data == [] and two.replica_state.replica_id == -1


def test_unsupported_version_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="Fetch has versions 0 to 18"):
        codec.encode(a_fetch(), 19)


def test_null_topics_before_they_are_nullable_are_a_type_error() -> None:
    with pytest.raises(TypeError):
        codec.encode(MetadataRequest(topics=None), 0)
    assert codec.encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert codec.encode(MetadataRequest(topics=[MetadataRequestTopic(name="a")]), 0).hex() == "00000001000161"


def test_large_compact_text_is_refused_as_in_kafka() -> None:
    with pytest.raises(DecodeError, match="text of 32768 bytes"):
        codec.decode(DescribeGroupsRequest, 5, b"\x02\x81\x80\x02" + b"a" * 32768 + b"\x00\x00")


def test_encoded_elements_take_the_place_of_elements_at_their_version_only() -> None:
    row = MetadataResponseTopic(error_code=0, name="t", partitions=[])
    encoded = EncodedElements([row], 12, codec.encode(dataclasses.replace(row, name="u"), 12))
    response = MetadataResponse(brokers=[], topics=encoded)
    for version, expected in ((11, "t"), (12, "u"), (13, "t")):
        received, _ = codec.decode(MetadataResponse, version, codec.encode(response, version))
        assert [one.name for one in received.topics] == [expected]
    with_other_rows = dataclasses.replace(response, topics=[*encoded, row])
    assert codec.encode(with_other_rows, 12) == layout.encode(with_other_rows, 12)
