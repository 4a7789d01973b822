"""Bytes are damaged only where the rule says."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.broker.network.response_override import ResponseOverride
from anabranch.faults.corruption import (
    DamagedResponse,
    SilentResponse,
    corrupt_frame,
    corrupted_records,
    flip_byte,
    truncate_frame,
    with_corrupted_records,
    with_wrong_correlation_id,
)
from anabranch.faults.request_fields import Names
from anabranch.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from anabranch.protocol.records.batch import check_crc, read_header
from anabranch.protocol.records.batch_builder import BatchBuilder
from tests.anabranch.faults.samples import armed

FRAME = b"\0\0\0\x0c" + b"\0\0\0\x05" + b"abcdefgh"
NAMES = Names(lambda topic_id: None)


class Line:
    """A connection that remembers what is done to it."""

    def __init__(self, frame: bytes = FRAME, patience: int = 1000) -> None:
        self.frame = frame
        self.done: list[Any] = []
        self.patience = patience

    def encode_response(self, response: Any) -> list[Any]:
        return [self.frame[:4], self.frame[4:]] if self.frame else []

    def send(self, chunks: list[Any]) -> None:
        self.done += chunks

    async def wait(self, wait_ms: int) -> bool:
        self.done.append(wait_ms)
        self.patience -= 1
        return self.patience > 0

    def stop_reading(self) -> None:
        self.done.append("deaf")

    def close(self) -> None:
        self.done.append("closed")

    def abort(self) -> None:
        self.done.append("aborted")


def test_frame_is_truncated_flipped_or_renumbered() -> None:
    assert truncate_frame(FRAME, 3) == b"\0\0\0\x09" + FRAME[4:13]
    assert truncate_frame(FRAME, 100) == b"\0\0\0\x04" + FRAME[4:8]
    assert [at for at, (one, other) in enumerate(zip(FRAME, corrupt_frame(FRAME), strict=True)) if one != other] == [12]
    assert corrupt_frame(FRAME[:8]) == FRAME[:8]
    assert (
        with_wrong_correlation_id(FRAME)[:4] == FRAME[:4]
        and with_wrong_correlation_id(FRAME)[8:] == FRAME[8:]
        and with_wrong_correlation_id(FRAME) != FRAME
    )
    assert flip_byte(b"abc", 1) == bytes([97, 98 ^ 0x55, 99])


def records() -> bytes:
    builder = BatchBuilder()
    builder.append(b"key", b"some value", (), 1)
    return bytes(builder.build())


def test_records_checksum_is_broken_and_header_is_not() -> None:
    made = corrupted_records(records() + records())
    assert made[:61] == records()[:61] and made[len(records()) :] == records()
    assert made != records() * 2
    assert corrupted_records(b"short") == b"short"
    sound = [check_crc(made, at, read_header(made, at)) for at in (0, len(records()))]
    assert sound == [False, True]


def test_only_selected_records_are_corrupted() -> None:
    def answer() -> FetchResponse:
        rows = [PartitionData(partition_index=at, error_code=0, high_watermark=1, records=records()) for at in (0, 1)]
        return FetchResponse(responses=[FetchableTopicResponse(topic="a", partitions=rows)])

    before = answer()
    made = with_corrupted_records(NAMES, before, 11, {}, lambda row: row.get("partition", 1) == 1)
    first, second = made.responses[0].partitions
    assert first.records == records() != second.records
    assert before == answer()


async def test_response_is_damaged_as_its_rule_says() -> None:
    async def played(**said: Any) -> list[Any]:
        line = Line()
        await DamagedResponse([armed(**said).rule], object()).apply(line)
        return line.done

    assert await played(truncate=3) == [truncate_frame(FRAME, 3)]
    assert await played(corrupt="frame", wrong_correlation_id=True) == [with_wrong_correlation_id(corrupt_frame(FRAME))]
    assert await played(disconnect="middle") == [FRAME[:8], "closed", 10**9]
    dripped = await played(drip=50)
    assert b"".join(dripped[::2]) == FRAME and dripped[1::2] == [100] * 4


async def test_drip_ends_with_its_connection() -> None:
    line = Line(patience=2)
    await DamagedResponse([armed(drip=10).rule], object()).apply(line)
    assert line.done == [FRAME[:1], 100, FRAME[1:2], 100]


async def test_missing_response_is_not_damaged() -> None:
    line = Line(frame=b"")
    await DamagedResponse([armed(disconnect="middle").rule], None).apply(line)
    assert line.done == []


async def test_silent_connection_stays_open_and_half_open_one_is_reset_with_its_rule() -> None:
    line, rule = Line(), armed(silence=True)
    await SilentResponse(rule).apply(line)
    rule.remove()
    assert line.done == [10**9]
    line, rule = Line(), armed(half_open=True)
    await SilentResponse(rule).apply(line)
    rule.remove()
    assert line.done == ["deaf", 10**9, "aborted"]


async def test_abstract_override_cannot_be_applied() -> None:
    with pytest.raises(NotImplementedError):
        await ResponseOverride().apply(Line())
