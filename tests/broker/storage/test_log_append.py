"""Appends of a leader and of a follower: what is stored, what is refused, and what a refusal leaves."""

from __future__ import annotations

import pytest

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log_append import append_as_follower, find_duplicate
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import check_crc, iter_batches, read_header
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.records.record import iter_records
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.logs import append, code_of, everything, opened


def test_append_sets_offsets_and_epoch_only(files: Files) -> None:
    log = opened(files)
    first = append(log, batch(3), epoch=4)
    assert (first.first_offset, first.last_offset, first.record_count, first.duplicate) == (0, 2, 3, False)
    assert (first.log_append_time_ms, first.log_start_offset, first.max_timestamp) == (-1, 0, NOW_MS + 2)
    second = append(log, batch(2), epoch=5)
    assert (second.first_offset, second.last_offset, log.log_end_offset) == (3, 4, 5)
    stored = bytes(log.read(0, 10_000))
    [(_, one), (at, two)] = iter_batches(stored)
    assert [(h.base_offset, h.partition_leader_epoch) for h in (one, two)] == [(0, 4), (3, 5)]
    assert check_crc(stored, 0, one)
    assert check_crc(stored, at, two)
    assert stored[16:at] == batch(3)[16:]
    assert log.epochs.entries == ((4, 0), (5, 3))
    assert log.size_bytes == len(stored)


def test_refused_batch_changes_nothing(files: Files) -> None:
    log = opened(files)
    append(log, batch(2, producer=(1, 0, 0)))
    before = (log.log_end_offset, log.size_bytes, log.epochs.entries)
    corrupt = batch()[:-1] + b"x"
    for records, code in (
        (corrupt, ErrorCode.CORRUPT_MESSAGE),
        (batch(value=bytes(2000)), ErrorCode.RECORD_LIST_TOO_LARGE),
        (batch(producer=(1, 0, 5)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(control=True), ErrorCode.INVALID_RECORD),
    ):
        assert code_of(append, log, records, epoch=9) is code
    assert (log.log_end_offset, log.size_bytes, log.epochs.entries) == before


def test_log_append_time_replaces_timestamps(files: Files) -> None:
    log = opened(files, LogSettings(message_timestamp_type="LogAppendTime"))
    produced = batch(2, producer=(1, 0, 0), timestamp_ms=5)
    info = append(log, produced, now_ms=NOW_MS + 7)
    assert (info.log_append_time_ms, info.max_timestamp) == (NOW_MS + 7, NOW_MS + 7)
    stored = log.read(0, 1000)
    assert check_crc(stored, 0, read_header(stored))
    assert {record.timestamp_ms for record in iter_records(stored)} == {NOW_MS + 7}
    again = find_duplicate(log, produced)
    assert again is not None and again.log_append_time_ms == NOW_MS + 7


@pytest.mark.parametrize(("name", "codec"), [("uncompressed", 0), ("zstd", 4)])
def test_topic_compression_overrides_the_producers(name: str, codec: int) -> None:
    log = opened(MemoryFiles(), LogSettings(compression_type=name))
    append(log, batch(20, compression="lz4", producer=(1, 0, 0)))
    stored = log.read(0, 10_000)
    header = read_header(stored)
    assert (header.codec, header.record_count, header.base_sequence) == (codec, 20, 0)
    assert check_crc(stored, 0, header)
    assert header.size_bytes == len(stored)
    assert len(list(iter_records(stored))) == 20
    append(log, batch(compression="none" if codec == 0 else "zstd"))
    assert read_header(log.read(20, 1000)).codec == codec


def test_producer_compression_is_kept() -> None:
    log = opened(MemoryFiles())
    for codec in Compression:
        append(log, batch(compression=codec.name.lower()))
    assert [header.codec for header in everything(log)] == list(Compression)


def test_batch_too_large_after_decompression_is_refused() -> None:
    log = opened(MemoryFiles(), LogSettings(compression_type="uncompressed", max_message_bytes=1000))
    assert code_of(append, log, batch(50, value=bytes(100), compression="zstd")) is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0


def test_duplicates_get_their_original_append_info(files: Files) -> None:
    log = opened(files)
    batches = [batch(2, producer=(7, 0, 2 * number)) for number in range(6)]
    infos = [append(log, records) for records in batches]
    for records, info in zip(batches[1:], infos[1:], strict=True):
        found = find_duplicate(log, records)
        assert found is not None
        assert (found.first_offset, found.last_offset, found.duplicate) == (info.first_offset, info.last_offset, True)
        assert code_of(append, log, records) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the caller asks before"
    assert find_duplicate(log, batches[0]) is None
    assert code_of(append, log, batches[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 12
    assert find_duplicate(log, b"") is find_duplicate(log, batch()) is find_duplicate(log, bytes(100)) is None


def test_follower_log_equals_the_leaders(files: Files) -> None:
    leader, copy = opened(MemoryFiles()), opened(files)
    for number in range(25):
        append(leader, batch(1 + number % 3, producer=(7, 0, leader.log_end_offset)), epoch=number // 10)
    while copy.log_end_offset < leader.log_end_offset:
        before = copy.log_end_offset
        data = leader.read(before, 400)
        info = append_as_follower(copy, bytes(data) + b"torn tail of an answer")
        assert (info.first_offset, info.last_offset) == (before, copy.log_end_offset - 1)
        assert info.size_bytes == len(data)
    assert everything(copy) == everything(leader)
    assert copy.epochs.entries == leader.epochs.entries == ((0, 0), (1, 19), (2, 39))
    assert find_duplicate(copy, batch(1, producer=(7, 0, 48))) is not None
    nothing = append_as_follower(copy, b"")
    assert (nothing.last_offset - nothing.first_offset, nothing.size_bytes) == (-1, 0)


def test_follower_refuses_invalid_or_non_contiguous_batches() -> None:
    log = opened(MemoryFiles())
    append_as_follower(log, batch(3, at=(0, 1)))
    damaged = batch(at=(5, 1))[:-1] + b"x"
    assert code_of(append_as_follower, log, batch(at=(2, 1))) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert code_of(append_as_follower, log, batch(2, at=(3, 1)) + damaged) is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 5, "the sound batch in front of the damaged one stays"
    other_magic = bytearray(batch(at=(5, 1)))
    other_magic[16] = 1
    assert code_of(append_as_follower, log, bytes(other_magic)) is ErrorCode.CORRUPT_MESSAGE
    append_as_follower(log, batch(at=(9, 1)))  # compaction at the leader leaves gaps
    assert [header.base_offset for header in everything(log)] == [0, 3, 9]
    assert [header.base_offset for _, header in iter_batches(log.read(6, 100))] == [9]


def test_a_follower_may_begin_in_the_middle_of_a_batch(files: Files) -> None:
    log = opened(files)
    log.truncate_fully_and_start_at(102)  # the leader has deleted records up to here
    damaged = batch(5, at=(100, 3))[:-1] + b"x"
    assert code_of(append_as_follower, log, damaged) is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_start_offset, log.log_end_offset) == (102, 102)
    append_as_follower(log, batch(5, at=(100, 3)) + batch(at=(105, 3)))
    assert (log.log_start_offset, log.log_end_offset) == (102, 106)
    assert [header.base_offset for header in everything(log)] == [100, 105]
    assert opened(files, log_start_offset=102).log_start_offset == 102
    assert code_of(append_as_follower, log, batch(5, at=(104, 3))) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("start_offset", [101, 104])
def test_follower_log_may_start_inside_a_batch(files: Files, start_offset: int) -> None:
    log = opened(files)
    log.truncate_fully_and_start_at(start_offset)
    append_as_follower(log, batch(5, at=(100, 3)))
    assert (log.log_start_offset, log.log_end_offset) == (start_offset, 105)
    assert [header.base_offset for header in everything(log)] == [100]
