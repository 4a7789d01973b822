"""Unvalidated records of older versions do no harm to their readers."""

from __future__ import annotations

import logging

import pytest

from anabranch.broker.storage.cleaner import Cleaning, cleanable_part
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import append_as_follower
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import iter_batches, read_header
from anabranch.protocol.records.record import iter_records
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.logs import append, everything
from tests.broker.storage.unreadable import FAR_OFFSETS, FAR_TIMESTAMPS, UNREADABLE, with_max_timestamp
from tests.protocol.stored_batch import stored_at

COMPACT = LogSettings(segment_bytes=400, cleanup_policy="compact")
ALL = {**UNREADABLE, "timestamps of 65 bits": FAR_TIMESTAMPS, "an offset far away": FAR_OFFSETS}
WITHOUT_HEADERS = UNREADABLE["a name that is no text"]
"""It can be read by whoever reads no headers: a search."""
READABLE = (UNREADABLE["an unknown marker"], UNREADABLE["offsets beyond the batch"])
"""By those who do not ask for more than their bytes say."""
cases = pytest.mark.parametrize("records", ALL.values(), ids=ALL.keys())


def holding(files: MemoryFiles, records: bytes, settings: LogSettings) -> PartitionLog:
    """A log with such a batch among sound ones; it came as a follower gets it, which takes what its leader has."""
    log = PartitionLog.open(files, "t-0", settings, NOW_MS)
    for key in (b"a", b"b", b"a", b"b"):
        append(log, batch(key=key), epoch=0)
    append_as_follower(log, stored_at(records, log.log_end_offset))
    for key in (b"a", b"c", b"a", b"c"):
        append(log, batch(key=key), epoch=0)
    return log


@cases
def test_log_with_an_unreadable_batch_is_recovered(records: bytes) -> None:
    files = MemoryFiles()
    log = holding(files, records, LogSettings(segment_bytes=400))
    before = everything(log)
    again = PartitionLog.open(files, "t-0", LogSettings(segment_bytes=400), NOW_MS)
    assert again.scanned_segments > 1
    assert everything(again) == before
    assert again.truncate_to(5)
    assert append(again).first_offset <= 5


@cases
def test_search_by_time_returns_the_first_offset_of_an_unreadable_batch(records: bytes) -> None:
    """Any of its records may match."""
    log = holding(MemoryFiles(), with_max_timestamp(records, NOW_MS + 9), LogSettings())
    for timestamp_ms in (NOW_MS + 5, NOW_MS + 9):
        found = log.offset_for_timestamp(timestamp_ms)
        if records in UNREADABLE.values() and records not in (*READABLE, WITHOUT_HEADERS):
            assert found is not None and (found.offset, found.timestamp_ms) == (4, NOW_MS + 9)
        else:
            assert found is None or found.timestamp_ms < 2**63
    assert log.offset_for_timestamp(NOW_MS + 10) is None
    within = log.offset_for_timestamp(NOW_MS)
    assert within is not None and within.offset == 0
    log.increment_log_start_offset(4)
    within = log.offset_for_timestamp(NOW_MS)
    assert within is not None and within.offset in (4, 5, log.log_end_offset - 4)


@cases
def test_unreadable_batch_is_kept_by_compaction(records: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """An unreadable batch stays unchanged, others are compacted, and it is logged once."""
    files = MemoryFiles()
    log = holding(files, records, COMPACT)
    caplog.clear()
    for _ in range(2):
        cleaning = Cleaning(files, log, cleanable_part(log, log.log_end_offset, NOW_MS), NOW_MS)
        with caplog.at_level(logging.ERROR):
            while cleaning.step():
                pass
        assert log.cleaned_to == log.segments.active.base_offset
        log.roll(log.log_end_offset)
    kept: dict[int, bytes] = {}
    offset = 0
    while offset < log.log_end_offset:
        one = bytes(log.read(offset, 1))
        header = read_header(one)
        kept[header.base_offset] = one
        offset = header.next_offset
    assert kept.pop(4) == stored_at(records, 4)
    assert [next(iter_records(one)).key for one in kept.values()] == [b"b", b"a", b"c"]
    unreadable = records not in (FAR_OFFSETS, WITHOUT_HEADERS)
    assert len(caplog.messages) == unreadable
    assert not unreadable or "at offset 4" in caplog.text


def test_unreadable_examples_raise_a_decode_error() -> None:
    for records in UNREADABLE.values():
        if records not in READABLE:
            with pytest.raises(DecodeError):
                list(iter_records(records))
    assert [header.size_bytes for _, header in iter_batches(FAR_TIMESTAMPS)] == [len(FAR_TIMESTAMPS)]
