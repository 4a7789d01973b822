"""Walks over records refuse exactly the records that no decoder can read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import HEADER, HEADER_BYTES, MAGIC
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.record import Record, iter_records
from anabranch.protocol.records.walk import (
    STEP_RECORDS,
    RecordLengthError,
    WalkBudget,
    Walked,
    iter_outlines,
    iter_walk,
    walk,
    walk_few,
)
from anabranch.protocol.varint import encode_varint

Fields = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

LENGTHS = st.sampled_from([0, 1, 2, 62, 63, 64, 65, 127, 128, 129, 8191, 8192, 8193, 70_000])
BYTES = LENGTHS.map(bytes) | st.binary(max_size=20)
RECORDS = st.lists(
    st.tuples(
        st.none() | BYTES,
        st.none() | BYTES,
        st.lists(st.tuples(st.text(max_size=5) | st.just("n" * 200), st.none() | BYTES), max_size=2),
        st.integers(-3, 3) | st.sampled_from([63, 64, 8191, 8192, 1 << 40]),
    ),
    min_size=1,
    max_size=8,
)


def content_of(records: list[Fields]) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 30)
    for key, value, headers, timestamp_ms in records:
        builder.append(key, value, headers, timestamp_ms)
    return builder.build()[HEADER_BYTES:]


def decoded(content: bytes, count: int) -> list[Record]:
    """What a consumer makes of it. Raises DecodeError."""
    header = HEADER.pack(0, HEADER_BYTES - 12 + len(content), 0, MAGIC, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    return list(iter_records(header + content))


def summary(records: list[Record]) -> Walked:
    """What a walk over the same records has to find, the base timestamp being 0."""
    times = [record.timestamp_ms for record in records]
    return Walked(
        max(times),
        min(*times, 0),
        any(record.key is None for record in records),
        [record.offset for record in records] == list(range(len(records))),
    )


def agreed(content: bytes, count: int) -> bool:
    """Whether the walk and the decoder both accept the records, with equal results."""
    try:
        records = decoded(content, count)
    except DecodeError:
        with pytest.raises(DecodeError):
            walk(content, count)
        assert walk_few(content, count) is None
        return False
    walked = walk(content, count)
    assert walk_few(content, count) in (None, walked)
    assert walked._replace(min_timestamp_delta=min(walked.min_timestamp_delta, 0)) == summary(records)
    outlines = list(iter_outlines(content, count))
    assert [(one.offset_delta, one.timestamp_delta, one.has_key) for one in outlines] == [
        (record.offset, record.timestamp_ms, record.key is not None) for record in records
    ]
    return True


@given(RECORDS)
def test_producer_batches_give_same_result_as_reference(records: list[Fields]) -> None:
    assert agreed(content_of(records), len(records))


@given(RECORDS, st.data())
def test_damaged_batches_give_same_result_as_reference(records: list[Fields], data: st.DataObject) -> None:
    content = bytearray(content_of(records))
    count = len(records)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, min(len(content) - 1, 300)))
        match data.draw(st.sampled_from(["change", "cut", "insert", "count"])):
            case "change":
                content[position] = data.draw(st.sampled_from([0, 1, 2, 3, 127, 128, 255]) | st.integers(0, 255))
            case "cut":
                del content[position : position + data.draw(st.integers(1, 3))]
            case "insert":
                content[position:position] = data.draw(st.binary(min_size=1, max_size=3))
            case _:
                count = max(1, count + data.draw(st.sampled_from([-1, 1, 1000])))
        if not content:
            return
    agreed(bytes(content), count)


@pytest.mark.parametrize(
    ("position", "byte", "refused"),
    [
        pytest.param(3, 3, False, id="offset delta -2"),
        pytest.param(3, 1, False, id="offset delta -1"),
        pytest.param(4, 3, True, id="key of -2 bytes"),
        pytest.param(5, 5, True, id="value of -3 bytes"),
    ],
)
def test_negative_numbers_of_a_record_are_read_with_their_sign_or_refused(
    position: int, byte: int, refused: bool
) -> None:
    content = bytearray(content_of([(None, None, [], 0)]))
    content[position] = byte
    assert agreed(bytes(content), 1) is not refused


@pytest.mark.parametrize(
    ("records", "is_few"),
    [
        ([(b"k", b"v" * 100, [("h", b"w")], 5), (None, None, [], 7)], True),
        ([(b"k", b"v", [], 5)] * 31, True),
        ([(b"k", b"v", [], 5)] * 32, False),
        ([(b"k", bytes(70_000), [], 5)], False),
        ([(b"k", b"v", [], 1 << 40)], True),
        ([(b"k", b"v", [], 0), (b"k", b"v", [], -1)], False),
    ],
)
def test_few_common_records_are_walked_in_one_step(records: list[Fields], is_few: bool) -> None:
    content = content_of(records)
    assert walk_few(content, len(records)) == (walk(content, len(records)) if is_few else None)
    assert walk_few(content + b"\0", len(records)) is None


@given(st.binary(max_size=40), st.integers(1, 4))
def test_random_bytes_give_same_result_as_reference(content: bytes, count: int) -> None:
    agreed(content, count)


ONE = content_of([(b"key", b"value", [("name", b"x")], 0)])
PLAIN = content_of([(b"key", b"value", [], 0)])


@pytest.mark.parametrize(
    ("content", "count"),
    [
        pytest.param(PLAIN, 1000, id="more declared than there are"),
        pytest.param(PLAIN + PLAIN, 1, id="fewer declared than there are"),
        pytest.param(PLAIN, 2**31 - 1, id="far more"),
        pytest.param(b"", 1, id="none at all"),
        pytest.param(PLAIN[:-1], 1, id="cut off"),
        pytest.param(PLAIN + b"\0", 1, id="a byte behind"),
        pytest.param(bytes((PLAIN[0] + 2,)) + PLAIN[1:] + b"\0", 1, id="a record longer than its fields"),
        pytest.param(bytes((PLAIN[0] - 2,)) + PLAIN[1:], 1, id="a record shorter than its fields"),
        pytest.param(b"\x01" + PLAIN[1:], 1, id="a negative length"),
        pytest.param(PLAIN.replace(b"\x06key", b"\x7ekey"), 1, id="a key beyond its record"),
        pytest.param(PLAIN.replace(b"\x06key", b"\x03key"), 1, id="a key of -2 bytes"),
        pytest.param(PLAIN.replace(b"\x0avalue", b"\x7evalue"), 1, id="a value beyond its record"),
        pytest.param(PLAIN.replace(b"\x0avalue", b"\x07value"), 1, id="a value of -4 bytes"),
        pytest.param(ONE.replace(b"\x02\x08name", b"\x7e\x08name"), 1, id="more headers than bytes"),
        pytest.param(ONE.replace(b"\x02\x08name", b"\x01\x08name"), 1, id="-1 headers"),
        pytest.param(ONE.replace(b"\x02\x08name", b"\x04\x08name"), 1, id="a header more than there are"),
        pytest.param(ONE.replace(b"\x08name", b"\x01name"), 1, id="a header without a name"),
        pytest.param(ONE.replace(b"\x08name", b"\x7ename"), 1, id="a header name beyond its record"),
        pytest.param(ONE.replace(b"name", b"\xff\xfe\xfd\xfc"), 1, id="a header name that is no text"),
        pytest.param(ONE.replace(b"\x02x", b"\x7ex"), 1, id="a header value beyond its record"),
    ],
)
def test_malformed_records_are_refused(content: bytes, count: int) -> None:
    with pytest.raises(DecodeError):
        walk(content, count)


def test_unterminated_length_is_a_record_length_error() -> None:
    with pytest.raises(RecordLengthError):
        walk(b"\xff" * 70, 1)


def test_offsets_out_of_sequence_are_reported() -> None:
    two = content_of([(b"k", b"v", [], 0), (b"k", b"v", [], 0)])
    assert walk(two, 2).in_sequence
    for wrong in (two.replace(b"\0\0\x02\x02k", b"\0\0\x00\x02k"), two.replace(b"\0\0\x02\x02k", b"\0\0\x04\x02k")):
        assert wrong != two
        assert not walk(wrong, 2).in_sequence


@pytest.mark.parametrize("sizes", [[10] * 20_000, [70_000, 1, 200_000, 1, 1], [1, 65_530, 8, 9], [65_521, 100]])
def test_records_across_pieces_give_same_result(sizes: list[int]) -> None:
    """A long batch is decoded piece by piece; piece boundaries make no difference."""
    content = content_of([(None if index % 2 else b"k", bytes(size), [], index) for index, size in enumerate(sizes)])
    expected = Walked(len(sizes) - 1, 0, has_null_key=True, in_sequence=True)
    for buffer in (content, memoryview(content), bytearray(content)):
        assert walk(buffer, len(sizes)) == expected
    with pytest.raises(DecodeError):
        walk(content[:-1], len(sizes))


def test_steps_are_bounded() -> None:
    count = 10 * STEP_RECORDS
    content = content_of([(b"k", b"v", [], 0)] * count)
    assert len(list(iter_walk(content, count))) >= 10
    assert list(iter_walk(content_of([(b"k", b"v", [], 0)] * 100), 100)) == []
    assert list(iter_walk(content_of([(b"k", bytes(1000), [], 0)] * 1000), 1000)) == [], "an ordinary batch of 1 MB"


def test_walks_with_shared_budget_yield_as_often_as_one() -> None:
    content, budget = content_of([(b"k", b"v", [("a", b"b")], 0)] * 100), WalkBudget()
    assert 18 <= sum(len(list(iter_walk(content, 100, budget))) for _ in range(410)) <= 20


@pytest.mark.parametrize(("records", "headers"), [(2000, 60), (300, 500), (3, 50_000)])
def test_headers_count_towards_step_budget(records: int, headers: int) -> None:
    """A record may have almost as many headers as bytes; they are not read in one iteration."""
    content = content_of([(b"k", b"v", [("", None)] * headers, 0)] * records)
    steps = sum(1 for _ in iter_walk(content, records))
    assert records * headers / STEP_RECORDS < 1.2 * steps + 1
    assert agreed(content, records)
    with pytest.raises(DecodeError):
        walk(content[:-1] + b"\x02", records)


def test_offsets_of_every_length_are_decoded() -> None:
    """Up to four bytes; a wrong one is found at the end of a million."""

    def record(offset_delta: int) -> bytes:
        body = b"\0\0" + encode_varint(offset_delta) + b"\1\1\0"
        return encode_varint(len(body)) + body

    count = (1 << 20) + 3
    content = b"".join(map(record, range(count)))
    assert walk(content, count) == Walked(0, 0, has_null_key=True, in_sequence=True)
    wrong = content[: -len(record(count - 1))] + record(count)
    assert not walk(wrong, count).in_sequence


def test_two_byte_offsets_are_decoded_up_to_the_last() -> None:
    """Offset deltas take three bytes from 8192 on, in another code path."""
    content = content_of([(b"key", bytes(80), [], 0)] * 8300)
    assert walk(content, 8300) == Walked(0, 0, has_null_key=False, in_sequence=True)
    for index in (63, 64, 8191, 8192, 8299):
        at = content_of([(b"key", bytes(80), [], 0)] * index)
        one = content_of([(b"key", bytes(80), [], 0)] * (index + 1))[len(at) :]
        delta = encode_varint(index)
        wrong = content.replace(one, one.replace(b"\0\0" + delta, b"\0\0" + encode_varint(index - 1), 1), 1)
        assert wrong != content
        if len(wrong) == len(content):
            assert not walk(wrong, 8300).in_sequence
