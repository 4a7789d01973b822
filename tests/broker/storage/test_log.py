from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import AppendInfo, append_as_follower, append_as_leader, find_duplicate
from anabranch.broker.storage.log_settings import DAY_MS
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.control import build_end_transaction
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.faulty_files import FaultyFiles
from tests.broker.storage.logs import append, code_of, everything, opened

# ----------------------------------------------------------------------------------------------------------- rolling


def test_segments_roll_by_size(files: Files) -> None:
    log = opened(files)
    sizes = [append(log, batch(1, value=bytes(100))).size_bytes for _ in range(20)]
    assert len(log.segments) == -(-20 // (1000 // sizes[0]))
    assert [header.base_offset for header in everything(log)] == list(range(20))
    names = [name for name in files.names("t-0") if name.endswith(".log")]
    assert names == [f"{base:020d}.log" for base in range(0, 20, 1000 // sizes[0])]
    assert len([name for name in files.names("t-0") if name.endswith(".index")]) == len(names) - 1


def test_segments_roll_by_age() -> None:
    log = opened(MemoryFiles(), LogSettings(segment_ms=1000))
    for timestamp_ms, segments in ((0, 1), (1000, 1), (1001, 2), (1500, 2), (2002, 3)):
        append(log, batch(timestamp_ms=NOW_MS + timestamp_ms))
        assert len(log.segments) == segments
    append(log, batch(timestamp_ms=-1), now_ms=NOW_MS + 10**9)
    assert len(log.segments) == 4


# ------------------------------------------------------------------------------------------------------------- reading


def test_read_ends_at_the_limit_offset(files: Files) -> None:
    log = opened(files)
    for _ in range(30):
        append(log, batch(2))
    for limit in range(0, 61, 2):
        offset = 0
        while data := log.read(offset, 300, limit_offset=limit):
            offset = [header for _, header in iter_batches(data)][-1].next_offset
        assert offset == limit
    assert log.read(60, 300) == b""
    assert log.read(10, 300, limit_offset=4) == b""


def test_read_outside_of_the_log_is_out_of_range() -> None:
    log = opened(MemoryFiles())
    for _ in range(3):
        append(log)
    log.increment_log_start_offset(1)
    assert code_of(log.read, 0, 100) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(log.read, 4, 100) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, 100) == b""


def test_first_batch_may_exceed_max_bytes() -> None:
    log = opened(MemoryFiles())
    size_bytes = append(log).size_bytes
    append(log)
    append(log)
    assert len(log.read(1, 1)) == size_bytes
    assert log.read(1, 1, min_one_batch=False) == b""
    assert len(log.read(1, 2 * size_bytes - 1)) == size_bytes
    assert len(log.read(0, 2 * size_bytes)) == 2 * size_bytes


def test_search_by_time_finds_the_first_matching_record(files: Files) -> None:
    log = opened(files)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_ms == -1
    for number in range(30):
        append(
            log, batch(3, timestamp_ms=1000 + 10 * number, compression="gzip" if number % 2 else "none"), epoch=number
        )
    assert len(log.segments) > 3
    for timestamp_ms in range(990, 1300):
        expected = next(
            (
                (1000 + 10 * number + inside, 3 * number + inside, number)
                for number in range(30)
                for inside in range(3)
                if 1000 + 10 * number + inside >= timestamp_ms
            ),
            None,
        )
        assert log.offset_for_timestamp(timestamp_ms) == expected
    assert log.max_timestamp_ms == 1292
    log.increment_log_start_offset(50)
    assert log.offset_for_timestamp(0) == (1162, 50, 16)


def test_search_by_time_works_with_unordered_timestamps() -> None:
    log = opened(MemoryFiles(), LogSettings(index_interval_bytes=1))
    for timestamp_ms in (500, 900, 100, 900, 700, 950, 20):
        append(log, batch(timestamp_ms=timestamp_ms))
    found = {timestamp: log.offset_for_timestamp(timestamp) for timestamp in (0, 501, 900, 901, 951)}
    assert {ts: answer and answer.offset for ts, answer in found.items()} == {0: 0, 501: 1, 900: 1, 901: 5, 951: None}
    assert log.max_timestamp_ms == 950


# --------------------------------------------------------------------------------------------- producers, transactions


@pytest.mark.parametrize("how", ["leader", "follower", "restarted", "truncated"])
def test_producer_of_old_records_expires_once_it_is_idle(files: Files, how: str) -> None:
    """Its records may be older than `producer.id.expiration.ms`, as those of a migration are."""
    old = batch(1, producer=(7, 0, 0), timestamp_ms=NOW_MS - 2 * DAY_MS)
    log = opened(files)
    if how == "follower":
        append_as_follower(log, old)
    else:
        append(log, old)
    if how == "truncated":
        append(log, batch(1))
        log.truncate_to(1)
    elif how == "restarted":
        log.close()
        log = opened(files)
    log.expire_producers(NOW_MS + DAY_MS - 1)
    assert find_duplicate(log, old) is not None
    log.expire_producers(NOW_MS + DAY_MS)
    assert find_duplicate(log, old) is None


def marker(commit: bool, *, epoch: int = 0, coordinator_epoch: int = 1) -> bytes:
    return build_end_transaction(
        commit=commit, producer_id=7, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp_ms=NOW_MS
    )


def end(log: PartitionLog, commit: bool, **epochs: int) -> AppendInfo:
    return append_as_leader(log, marker(commit, **epochs), leader_epoch=1, now_ms=NOW_MS, origin="coordinator")


def test_transactions_bound_the_last_stable_offset(files: Files) -> None:
    log = opened(files)
    append(log)
    append(log, batch(2, producer=(7, 0, 0), transactional=True))
    append(log)
    assert log.last_stable_offset(4) == 1
    assert log.last_stable_offset(1) == 1
    assert log.last_stable_offset(0) == 0
    end(log, False)
    assert (log.log_end_offset, log.last_stable_offset(4), log.last_stable_offset(5)) == (5, 1, 5)
    append(log, batch(2, producer=(7, 0, 2), transactional=True))
    for again in (log, opened(files)):
        assert again.last_stable_offset(7) == 5
        assert again.producers.aborted_transactions(0, 10) == [(7, 1, 4, 5)]
        assert again.producers.aborted_transactions(0, 1) == again.producers.aborted_transactions(5, 10) == []
    assert code_of(end, log, True, coordinator_epoch=0) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(log, True)
    assert log.last_stable_offset(8) == 8
    assert [header.is_control for header in everything(log)] == [False, False, False, True, False, True]
    log.truncate_to(7)
    assert log.last_stable_offset(7) == 5
    log.increment_log_start_offset(5)
    assert log.producers.aborted_transactions(0, 10) == []


# -------------------------------------------------------------------------------------------------- cutting, retaining


def test_truncation_at_any_offset_removes_whole_batches(files: Files) -> None:
    for target in range(31):
        log = opened(files)
        for number in range(15):
            append(log, batch(2, producer=(7, 0, 2 * number)), epoch=number // 5)
        log.truncate_to(target)
        end_offset = target - target % 2  # half a batch cannot stay
        assert log.log_end_offset == end_offset
        assert [header.base_offset for header in everything(log)] == list(range(0, end_offset, 2))
        assert log.epochs.entries == tuple((e, start) for e, start in ((0, 0), (1, 10), (2, 20)) if start < end_offset)
        again = opened(files)
        assert everything(again) == everything(log)
        assert again.epochs.entries == log.epochs.entries
        if end_offset:
            assert append(log, batch(2, producer=(7, 0, end_offset))).first_offset == end_offset
        log.delete()
        assert files.names("") == []


def test_truncation_at_the_end_removes_an_epoch_without_records() -> None:
    log = opened(MemoryFiles())
    append(log, epoch=1)
    log.epochs.assign(5, 1)
    assert not log.truncate_to(1)
    assert log.epochs.entries == ((1, 0),)
    append(log, epoch=1)
    assert not log.truncate_to(3)
    assert (log.log_end_offset, log.epochs.entries) == (2, ((1, 0),))


def test_log_starts_over_at_an_offset(files: Files) -> None:
    log = opened(files)
    for number in range(20):
        append(log, batch(1, producer=(7, 0, number)))
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, len(log.segments)) == (100, 100, 0, 1)
    assert log.epochs.entries == ()
    assert log.producers.get(7) is None
    assert append(log).first_offset == 100
    again = opened(files)
    assert (again.log_start_offset, again.log_end_offset) == (100, 101)


def test_advancing_the_log_start_deletes_whole_segments(files: Files) -> None:
    log = opened(files)
    for number in range(30):
        append(log, batch(1, value=bytes(100)), epoch=number // 10)
    segments, size_bytes = len(log.segments), log.size_bytes
    assert log.increment_log_start_offset(15)
    assert not log.increment_log_start_offset(15)
    assert not log.increment_log_start_offset(3)
    assert len(log.segments) < segments
    assert log.size_bytes < size_bytes
    assert log.epochs.entries == ((1, 15), (2, 20))
    assert everything(log)[0].base_offset == 15
    again = opened(files, log_start_offset=15)
    assert (again.log_start_offset, again.log_end_offset) == (15, 30)
    assert code_of(log.increment_log_start_offset, 31) is ErrorCode.OFFSET_OUT_OF_RANGE
    log.increment_log_start_offset(30)
    assert (log.log_start_offset, log.log_end_offset) == (30, 30)
    assert append(log).first_offset == 30


def thirty_batches(files: Files, **settings: int | str) -> PartitionLog:
    log = opened(files, LogSettings(segment_bytes=1000, **settings))  # type: ignore[arg-type]
    for number in range(30):
        append(log, batch(value=bytes(100), timestamp_ms=NOW_MS + 1000 * number))
    return log


def test_segments_older_than_retention_ms_are_deleted(files: Files) -> None:
    log = thirty_batches(files, retention_ms=10_000)
    assert log.apply_retention(NOW_MS + 10_000) == 0
    assert log.apply_retention(NOW_MS + 25_000) == 3  # batches older than 15 s: two segments of 5, and 10..14
    assert (log.log_start_offset, log.log_end_offset) == (15, 30)
    assert log.apply_retention(NOW_MS + 10**6) == len(log.segments) + 2
    assert (log.log_start_offset, log.log_end_offset, len(log.segments), log.size_bytes) == (30, 30, 1, 0)
    assert log.apply_retention(NOW_MS + 10**9) == 0
    assert append(log).first_offset == 30


def test_retention_on_a_full_disk_deletes_all_but_the_active_segment() -> None:
    files = FaultyFiles(MemoryFiles())
    log = thirty_batches(files, retention_ms=10_000)
    files.full = True
    for _ in range(2):
        with pytest.raises(OSError, match="space"):
            log.apply_retention(NOW_MS + 10**6)
        assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (25, 30, 1)
    assert everything(opened(FaultyFiles(files.inner)))[0].base_offset == 25, "and a crash now costs nothing"
    files.full = False
    assert log.apply_retention(NOW_MS + 10**6) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (30, 30, 0)


def test_segments_beyond_retention_bytes_are_deleted(files: Files) -> None:
    log = thirty_batches(files, retention_bytes=2500)
    log.apply_retention(NOW_MS)
    assert 2500 <= log.size_bytes < 2500 + 1000
    assert log.apply_retention(NOW_MS) == 0
    assert everything(log)[-1].base_offset == 29


@pytest.mark.parametrize(("less", "deleted"), [(0, 2), (-1, 1)])
def test_retention_bytes_are_kept_to_the_byte(less: int, deleted: int) -> None:
    """A segment is deleted if the rest still has as many bytes, and not if it has one less."""
    log = thirty_batches(MemoryFiles(), retention_bytes=1)
    rest = sum(segment.file.size_bytes for segment in list(log.segments)[2:])
    log.settings = replace(log.settings, retention_bytes=rest - less)
    assert log.apply_retention(NOW_MS) == deleted


def test_retention_keeps_uncommitted_records(files: Files) -> None:
    log = thirty_batches(files, retention_ms=10)
    log.apply_retention(NOW_MS + 10**6, high_watermark=12)
    assert log.log_start_offset == 10
    assert log.apply_retention(NOW_MS + 10**6, high_watermark=12) == 0


def test_retention_does_not_apply_to_compacted_topics() -> None:
    assert thirty_batches(MemoryFiles(), retention_ms=1, cleanup_policy="compact").apply_retention(NOW_MS + 10**6) == 0
    log = thirty_batches(MemoryFiles(), retention_ms=-1)
    assert log.apply_retention(NOW_MS + 10**15) == 0


def test_inactive_producers_expire() -> None:
    log = opened(MemoryFiles(), LogSettings(producer_id_expiration_ms=1000))
    append(log, batch(producer=(7, 0, 0)))
    log.expire_producers(NOW_MS + 999)
    assert log.producers.get(7) is not None
    log.expire_producers(NOW_MS + 1000)
    assert log.producers.get(7) is None


# ------------------------------------------------------------------------------------------------------------ listening


@pytest.mark.parametrize(
    "change",
    [
        lambda log: append(log, batch(), epoch=4),
        lambda log: append_as_follower(log, with_offset(log)),
        lambda log: log.truncate_to(2),
        lambda log: log.truncate_to(0),
        lambda log: log.truncate_fully_and_start_at(9),
        lambda log: log.increment_log_start_offset(1),
        lambda log: log.apply_retention(NOW_MS + 10**12),
    ],
)
def test_every_change_of_end_start_and_epochs_notifies_the_listener(change: Callable[[PartitionLog], object]) -> None:
    log = opened(MemoryFiles(), LogSettings(retention_ms=1))
    for _ in range(3):
        append(log, batch(), epoch=4)
    notified: list[str] = []
    log.changed = lambda: notified.append(f"{log.log_start_offset}..{log.log_end_offset}")
    change(log)
    assert notified and notified[-1] == f"{log.log_start_offset}..{log.log_end_offset}"


def test_truncated_epoch_without_records_notifies_the_listener() -> None:
    log = opened(MemoryFiles())
    append(log, batch(), epoch=4)
    log.epochs.assign(5, 1)
    notified: list[int] = []
    log.changed = lambda: notified.append(log.epochs.latest_epoch)
    assert not log.truncate_to(1)
    assert notified == [4]


def with_offset(log: PartitionLog) -> bytes:
    """The batch that a leader would send next."""
    other = opened(MemoryFiles())
    for _ in range(log.log_end_offset + 1):
        append(other, batch(), epoch=4)
    return bytes(other.read(log.log_end_offset, 10_000))
