"""One damaged batch: batches before and after it are served, the damaged one is not."""

from __future__ import annotations

import struct

import pytest

from anabranch.broker.storage.batch_validity import valid_headers, valid_prefix
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import iter_batches
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.logs import append, code_of

SETTINGS = LogSettings(segment_bytes=10_000, index_interval_bytes=400)
SEALED = 60
"""Batches in the first segment; each has two records."""


def rotten(victim: int, position: int, damage: bytes) -> tuple[PartitionLog, bytes]:
    """A log that was closed in order, and opened after some bytes of a sealed segment had changed; what it had."""
    files = MemoryFiles()
    log = PartitionLog.open(files, "t-0", SETTINGS, NOW_MS)
    for number in range(2 * SEALED):
        if number == SEALED:
            log.roll(log.log_end_offset)
        append(log, batch(2, value=b"%03d" % number))
    log.close()
    path = f"t-0/{0:020d}.log"
    sound = files.read_file(path)
    assert sound is not None
    size_bytes = len(sound) // SEALED
    at = victim * size_bytes + position
    files.write_file(path, sound[:at] + damage + sound[at + len(damage) :])
    again = PartitionLog.open(files, "t-0", SETTINGS, NOW_MS, recovery_point=log.recovery_point, clean=True)
    assert again.scanned_segments == 0, "nobody has looked yet"
    return again, sound


@pytest.mark.parametrize("max_bytes", [1, 150, 1000, 1 << 20])
@pytest.mark.parametrize("victim", [0, 1, 25, 45])
@pytest.mark.parametrize(
    ("position", "damage"),
    [(80, b"\xff"), (8, struct.pack(">i", 1 << 30)), (8, struct.pack(">i", 20)), (16, b"\x09")],
    ids=["a record", "too long", "too short", "magic"],
)
def test_batches_around_a_damaged_one_are_served(
    victim: int, position: int, damage: bytes, max_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    log, sound = rotten(victim, position, damage)
    size_bytes = len(sound) // SEALED
    for _ in range(2):
        for number in range(SEALED):
            if number == victim:
                assert code_of(log.read, 2 * number, max_bytes) is ErrorCode.CORRUPT_MESSAGE
                continue
            if number > victim and position == 8:
                continue  # nobody knows how far it goes; an entry of the index may
            data = bytes(log.read(2 * number, max_bytes))
            expected_count = max(1, min(max_bytes // size_bytes, (victim if number < victim else SEALED) - number))
            assert data == sound[number * size_bytes : (number + expected_count) * size_bytes]
        assert len(log.read(2 * SEALED, 1 << 20)) == len(sound), "the segment behind"
    assert len([line for line in caplog.messages if "is damaged at byte" in line]) == 1


@pytest.mark.parametrize("offset", [0, 7, 2 * SEALED - 4, 2**40])
def test_batch_with_an_impossible_offset_is_corrupt(offset: int) -> None:
    """The checksum does not cover it: a reader that trusts it would skip records."""
    log, _ = rotten(30, 0, struct.pack(">q", offset))
    at = 0
    while at < 58:
        offsets = [header.base_offset for _, header in iter_batches(log.read(at, 2000))]
        assert offsets == list(range(at, at + 2 * len(offsets), 2))
        at += 2 * len(offsets)
    # Of two batches whose offsets fall, the first may be the wrong one too.
    assert code_of(log.read, at, 2000) is ErrorCode.CORRUPT_MESSAGE
    assert at in (58, 60)


def test_valid_prefix_ends_before_the_first_invalid_batch() -> None:
    one, two, three = batch(2, at=(5, 1)), batch(1, at=(7, 1)), batch(1, at=(20, 1))
    assert valid_prefix(one + two + three, 5, 21) == (len(one + two + three), "")
    assert valid_prefix(one + two + three[:-1], 5, 21) == (len(one + two), "")
    assert valid_prefix(one + two + three, 6, 21) == (0, "offset 5 instead of 6")
    assert valid_prefix(one + two + three, 5, 20) == (len(one + two), "offset 20 in front of 20")
    assert valid_prefix(one + three + two, 5, 21) == (len(one), "offset 7 instead of 21")
    assert valid_prefix(one + two[:-1] + b"?", 5, 21) == (len(one), "the checksum of the batch at 7 is wrong")
    assert valid_prefix(b"", 5, 5) == (0, "")


def test_scan_reads_few_bytes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window of a scan has many batches."""
    file = MemoryFiles().open("segment")
    file.append(*[batch(1, at=(number, 1), value=bytes(300)) for number in range(400)])
    read, sizes = type(file).read, []

    def counted(of: object, position: int, count: int) -> bytes:
        data = read(of, position, count)  # type: ignore[arg-type]
        sizes.append(len(data))
        return data

    monkeypatch.setattr(type(file), "read", counted)
    assert len(list(valid_headers(file, 0, 0))) == 400
    assert sum(sizes) < 1.1 * file.size_bytes


def test_valid_headers_end_before_the_first_invalid_header() -> None:
    """By the header alone; the window of a scan ends inside of some batches."""
    whole = [batch(1, at=(5 + number, 1), value=bytes(300)) for number in range(400)]
    ends = [sum(map(len, whole[: number + 1])) for number in range(400)]
    other_magic, next_one = bytearray(whole[-1]), batch(1, at=(405, 1))
    other_magic[16] = 1
    for behind, found in (
        (b"", 0),
        (next_one, 1),
        (next_one[:-1], 0),
        (next_one[:60], 0),
        (bytes(other_magic), 0),
        (batch(1, at=(404, 1)), 0),
        (batch(1, at=(5 + 2**31, 1)), 0),
        (batch(1, at=(4 + 2**31, 1)), 1),
    ):
        file = MemoryFiles().open("segment")
        file.append(*whole, behind)
        for start in (0, 1, 399):
            headers = list(valid_headers(file, 5, ends[start] - len(whole[start])))
            assert [header.base_offset for _, header in headers][: 400 - start] == list(range(5 + start, 405))
            assert len(headers) == 400 - start + found
