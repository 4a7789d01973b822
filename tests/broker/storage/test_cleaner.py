"""Compaction of a log in use, with crashes at every step."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from anabranch.broker.storage.cleaner import Cleaning, cleanable_part, is_worth_cleaning
from anabranch.broker.storage.files import File, Files
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import append_as_follower, append_as_leader
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.records.record import iter_records
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.faulty_files import Crash, FaultyFiles
from tests.broker.storage.logs import append, code_of

COMPACT = LogSettings(segment_bytes=1500, index_interval_bytes=200, cleanup_policy="compact", delete_retention_ms=1000)
Value = bytes | None


def opened(files: Files, settings: LogSettings = COMPACT) -> PartitionLog:
    return PartitionLog.open(files, "c-0", settings, NOW_MS, recovery_point_lost=True)


def put(
    log: PartitionLog, *pairs: tuple[bytes, Value], now_ms: int = NOW_MS, producer: tuple[int, int, int] = (-1,) * 3
) -> int:
    builder = BatchBuilder()
    for key, value in pairs:
        builder.append(key, value, (), now_ms)
    return append(log, builder.build(*producer), now_ms=now_ms).last_offset


def records(log: PartitionLog) -> list[tuple[int, bytes | None, Value]]:
    found, offset = [], log.log_start_offset
    while data := log.read(offset, 700):
        for position, header in iter_batches(data):
            if not header.is_control:
                found += [(one.offset, one.key, one.value) for one in iter_records(data, position)]
            offset = header.next_offset
    return found


def view(log: PartitionLog) -> dict[bytes | None, Value]:
    """Return what a consumer of all records gets."""
    return {key: value for _, key, value in records(log) if value is not None or key is None}


def clean(files: Files, log: PartitionLog, now_ms: int = NOW_MS) -> int:
    cleaning = Cleaning(files, log, cleanable_part(log, log.log_end_offset, now_ms), now_ms)
    steps = 0
    while cleaning.step():
        steps += 1
    return steps


def filled(files: Files, keys: int = 5, count: int = 200) -> PartitionLog:
    log = opened(files)
    for number in range(count):
        put(log, (b"key-%d" % (number % keys), b"value-%d" % number), (b"once-%d" % (number // 20), b"x"))
    return log


def test_latest_record_of_each_key_is_kept(files: Files) -> None:
    log = filled(files)
    before, expected, end = records(log), view(log), log.log_end_offset
    active = log.segments.active
    untouched = active.file.read(0, active.file.size_bytes)
    clean(files, log)
    after = records(log)
    assert view(log) == expected
    assert log.log_end_offset == end
    assert set(after) <= set(before)
    sealed = [key for offset, key, _ in after if offset < active.base_offset]
    assert len(sealed) == len(set(sealed))
    assert len(after) < len(before) / 4
    assert active.file.read(0, active.file.size_bytes) == untouched
    assert log.cleaned_to == active.base_offset
    assert not [name for name in files.names("c-0") if name.endswith((".cleaned", ".swap"))]
    log.close()
    again = PartitionLog.open(files, "c-0", COMPACT, NOW_MS, recovery_point=log.recovery_point, clean=True)
    assert again.scanned_segments == 0
    assert records(again) == after
    for offset in range(end):
        data = again.read(offset, 1)
        assert next(iter_batches(data))[1].last_offset >= offset


def test_compaction_of_one_long_batch_takes_many_steps() -> None:
    files, settings = MemoryFiles(), replace(COMPACT, segment_bytes=1 << 20)
    log = opened(files, settings)
    builder = BatchBuilder("gzip", limit_bytes=1 << 20)
    for number in range(30_000):
        builder.append(b"%d" % (number % 100), b"value", (), NOW_MS)
    append(log, builder.build())
    log.roll(log.log_end_offset)
    assert clean(files, log) >= 3 * 30_000 // 4096
    assert len(records(log)) == 100


def test_emptied_segments_do_not_keep_later_ones_from_expiring_after_a_restart(files: Files) -> None:
    settings = replace(COMPACT, cleanup_policy="compact,delete", retention_ms=10_000)
    log = opened(files, settings)
    for number in range(60):
        put(log, (b"key", b"x" * 200), now_ms=NOW_MS + number)
    clean(files, log)
    assert not next(iter(log.segments)).file.size_bytes
    log.close()
    later_ms = NOW_MS + 60_000
    again = PartitionLog.open(files, "c-0", settings, later_ms, recovery_point=log.recovery_point, clean=True)
    again.apply_retention(later_ms)
    assert (again.log_start_offset, again.size_bytes) == (60, 0)


def test_emptied_segments_stay_before_one_that_has_not_expired(files: Files) -> None:
    settings = replace(COMPACT, cleanup_policy="compact,delete", retention_ms=10_000)
    log = opened(files, settings)
    for number in range(60):
        put(log, (b"key", b"x" * 200), now_ms=NOW_MS + number)
    clean(files, log)
    log.apply_retention(NOW_MS + 9_000)
    assert log.log_start_offset == 0
    log.apply_retention(NOW_MS + 10_000 + 58)
    assert (log.log_start_offset, len(log.segments)) == (log.segments.active.base_offset, 1)


def test_small_segments_are_merged(files: Files) -> None:
    log = filled(files)
    many = len(log.segments)
    for _ in range(2):  # what fits together is known when its size is
        clean(files, log)
        log.cleaned_to = 0
    assert len(log.segments) < many / 2
    for segment in log.segments:
        assert segment.file.size_bytes <= COMPACT.segment_bytes


def test_second_compaction_without_new_records_changes_nothing() -> None:
    files = MemoryFiles()
    log = filled(files)
    clean(files, log)
    clean(files, log)
    once = {name: files.read_file(f"c-0/{name}") for name in files.names("c-0")}
    assert cleanable_part(log, log.log_end_offset, NOW_MS).dirty_bytes == 0
    log.cleaned_to = 0
    clean(files, log)
    assert {name: files.read_file(f"c-0/{name}") for name in files.names("c-0")} == once


def test_tombstones_are_removed_after_delete_retention_ms(files: Files) -> None:
    log = opened(files)
    put(log, (b"gone", b"1"), (b"there", b"1"))
    put(log, (b"gone", None))
    for number in range(40):
        put(log, (b"filler", b"%d" % number))
    clean(files, log)
    assert (2, b"gone", None) in records(log)
    assert 0 not in [offset for offset, _, _ in records(log)]
    log.cleaned_to = 0
    clean(files, log, NOW_MS + 999)
    assert (2, b"gone", None) in records(log)
    log.cleaned_to = 0
    clean(files, log, NOW_MS + 1000)
    assert b"gone" not in [key for _, key, _ in records(log)]
    assert (1, b"there", b"1") in records(log)


def test_tombstones_and_markers_stay_for_ever_with_the_longest_delete_retention_ms(files: Files) -> None:
    log = opened(files, replace(COMPACT, delete_retention_ms=2**63 - 1))
    put(log, (b"key", b"value"), (b"key", None))
    marker = build_end_transaction(
        commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    append_as_leader(log, marker, leader_epoch=1, now_ms=NOW_MS, origin="coordinator")
    for number in range(40):
        put(log, (b"%d" % number, b"x" * 100))
    for now_ms in (NOW_MS, NOW_MS + 2**60):
        log.cleaned_to = 0
        clean(files, log, now_ms)
        assert records(log)[0] == (1, b"key", None)
        assert any(header.is_control and header.record_count for _, header in next(iter(log.segments)).headers())


def test_transaction_and_producer_state_is_kept_after_compaction(files: Files) -> None:
    log = opened(files)

    def send(key: bytes, sequence: int, producer_id: int, transactional: bool) -> None:
        builder = BatchBuilder()
        builder.append(key, b"1", (), NOW_MS)
        append(log, builder.build(producer_id, 0, sequence, transactional))

    def end(producer_id: int, commit: bool) -> None:
        marker = build_end_transaction(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        append_as_leader(log, marker, leader_epoch=1, now_ms=NOW_MS, origin="coordinator")

    for number in range(6):
        send(b"aborted", number, 7, True)
        end(7, commit=False)
        send(b"key", number, 8, False)
    for number in range(60):
        put(log, (b"key", b"%d" % number))
    send(b"open", 0, 9, True)
    assert log.log_start_offset == 0
    bound = cleanable_part(log, log.log_end_offset, NOW_MS).end
    for _ in range(2):
        clean(files, log, NOW_MS)
        log.cleaned_to = 0
    clean(files, log, NOW_MS + 2000)
    assert b"aborted" not in [key for offset, key, _ in records(log) if offset < bound]
    assert [(one.first_offset, one.last_offset) for one in log.producers.aborted if one.last_offset < bound] == [
        (15, 16)
    ], "its batch stays, for the producer's sequence, and so does its marker"
    before = {one.producer_id: (one.epoch, one.last_sequence) for one in log.producers.entries}
    for name in [name for name in files.names("c-0") if name.endswith(".snapshot")]:
        files.remove(f"c-0/{name}")
    again = opened(files)
    after = {one.producer_id: (one.epoch, one.last_sequence) for one in again.producers.entries}
    assert after == before
    assert again.last_stable_offset(again.log_end_offset) == log.last_stable_offset(log.log_end_offset)


def test_uncommitted_and_recent_records_are_not_compacted(files: Files) -> None:
    log = filled(files)
    bases = [segment.base_offset for segment in log.segments]
    assert cleanable_part(log, log.log_end_offset, NOW_MS).end == bases[-1]
    assert cleanable_part(log, bases[3] + 1, NOW_MS).end == bases[3]
    assert cleanable_part(log, log.log_end_offset, NOW_MS - 1).end == bases[-1], "without a lag, the future counts, too"
    for lag_ms in (1, 10):
        log.settings = replace(COMPACT, min_compaction_lag_ms=lag_ms)
        assert cleanable_part(log, log.log_end_offset, NOW_MS + lag_ms - 1).dirty_bytes == 0
        assert cleanable_part(log, log.log_end_offset, NOW_MS + lag_ms).end == bases[-1]


def test_log_below_min_cleanable_dirty_ratio_is_not_compacted(files: Files) -> None:
    log = filled(files)
    assert is_worth_cleaning(log, cleanable_part(log, log.log_end_offset, NOW_MS))
    log.settings = replace(COMPACT, cleanup_policy="delete")
    assert not is_worth_cleaning(log, cleanable_part(log, log.log_end_offset, NOW_MS))
    log.settings = COMPACT
    clean(files, log)
    for number in range(60):
        put(log, (b"new-%d" % number, b"x" * 20), now_ms=NOW_MS)
    dirt = cleanable_part(log, log.log_end_offset, NOW_MS)
    assert 0 < dirt.ratio < 1
    log.settings = replace(COMPACT, min_cleanable_dirty_ratio=dirt.ratio)
    assert not is_worth_cleaning(log, dirt)
    log.settings = replace(COMPACT, min_cleanable_dirty_ratio=dirt.ratio - 0.01)
    assert is_worth_cleaning(log, dirt)
    log.settings = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50)
    assert not is_worth_cleaning(log, cleanable_part(log, log.log_end_offset, NOW_MS + 50))
    assert is_worth_cleaning(log, cleanable_part(log, log.log_end_offset, NOW_MS + 51))


@pytest.mark.parametrize("follows", [False, True])
def test_active_segment_is_rolled_after_the_max_compaction_lag(follows: bool) -> None:
    log = opened(MemoryFiles(), replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50))
    written = [batch(timestamp_ms=NOW_MS + late_ms, at=(offset, 1)) for offset, late_ms in enumerate((0, 50, 51, 51))]
    if follows:
        append_as_follower(log, b"".join(written[:2]))
        append_as_follower(log, b"".join(written[2:]))
    for late_ms in () if follows else (0, 50, 51, 51):
        put(log, (b"key", b"value"), now_ms=NOW_MS + late_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert is_worth_cleaning(log, cleanable_part(log, log.log_end_offset, NOW_MS + 51))


def test_log_can_be_used_between_compaction_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.broker.storage.cleaner.STEP_BYTES", 300)
    files = MemoryFiles()
    log = filled(files)
    cleaning = Cleaning(files, log, cleanable_part(log, log.log_end_offset, NOW_MS), NOW_MS)
    steps = 0
    while cleaning.step():
        steps += 1
        put(log, (b"key-%d" % (steps % 5), b"later-%d" % steps))
        assert view(log)[b"key-%d" % (steps % 5)] == b"later-%d" % steps
    assert steps > 50
    assert log.cleaned_to > 0


@pytest.mark.parametrize("change", ["truncate", "retain", "start over"])
def test_compaction_is_abandoned_when_its_segments_change(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.broker.storage.cleaner.STEP_BYTES", 300)
    for after in (1, 20, 60, 75, 90):
        files = MemoryFiles()
        log = filled(files)
        cleaning = Cleaning(files, log, cleanable_part(log, log.log_end_offset, NOW_MS), NOW_MS)
        for _ in range(after):
            assert cleaning.step()
        match change:
            case "truncate":
                log.truncate_to(100)
            case "retain":
                log.increment_log_start_offset(100)
            case _:
                log.truncate_fully_and_start_at(1000)
        expected = records(log)
        assert not cleaning.step()
        assert records(log) == expected
        assert log.cleaned_to == 0
        assert not [name for name in files.names("c-0") if name.endswith((".cleaned", ".swap"))]


def test_crash_at_any_write_of_a_compaction_loses_no_key() -> None:
    """The process dies at each file operation in turn."""
    crashes = 0
    while True:
        files = FaultyFiles(MemoryFiles())
        log = filled(files, count=60)
        expected = view(log)
        files.crash_after = crashes
        try:
            clean(files, log)
        except Crash:
            crashes += 1
        else:
            break
        again = opened(files.inner)
        assert view(again) == expected, f"after {crashes} operations"
        assert again.log_end_offset == log.log_end_offset
        clean(files.inner, again)
        assert view(again) == expected
    assert crashes > 30


class RefusingFiles(FaultyFiles):
    """Refuse one removal, renaming or opening of a file, after so many that succeed."""

    refused, succeed = "", 0

    def remove(self, path: str) -> None:
        self.refuse("remove", path.endswith(".log") and self.exists(path))
        super().remove(path)

    def rename(self, source: str, target: str) -> None:
        self.refuse("rename", source.endswith(".swap"))
        super().rename(source, target)

    def open(self, path: str) -> File:
        self.refuse("open", path.endswith(".log"))
        return super().open(path)

    def refuse(self, action: str, concerned: bool) -> None:
        if concerned and action == self.refused:
            if not self.succeed:
                self.refused = ""
                raise OSError(errno.EIO, "input/output error")
            self.succeed -= 1


@pytest.mark.parametrize("action", ["remove", "rename", "open"])
@pytest.mark.parametrize("succeed", range(3))
def test_disk_error_while_segments_are_replaced_loses_no_record(action: str, succeed: int) -> None:
    """The next pass finds a copy that still has its temporary name, beside segments that it replaces."""
    files = RefusingFiles(MemoryFiles())
    log = filled(files)
    expected = view(log)
    files.refused, files.succeed = action, succeed
    with pytest.raises(OSError, match="input/output"):
        clean(files, log)
    for _ in range(2):
        assert view(log) == expected
        log.cleaned_to = 0
        clean(files, log)
    assert view(log) == view(opened(files.inner)) == expected
    assert not [name for name in files.names("c-0") if name.endswith((".swap", ".cleaned"))]


def test_full_disk_ends_only_the_compaction() -> None:
    files = FaultyFiles(MemoryFiles())
    log = filled(files)
    expected = records(log)
    files.full = True
    with pytest.raises(OSError, match="space"):
        clean(files, log)
    assert records(log) == expected
    files.full = False
    clean(files, log)
    assert len(records(log)) < len(expected)


def test_damaged_batch_stops_the_compaction() -> None:
    files = MemoryFiles()
    log = filled(files)
    log.close()
    path = f"c-0/{list(log.segments)[2].base_offset:020d}.log"
    content = bytearray(files.read_file(path) or b"")
    content[-2] ^= 1
    files.write_file(path, bytes(content))
    again = PartitionLog.open(files, "c-0", COMPACT, NOW_MS, recovery_point=log.recovery_point, clean=True)
    assert code_of(clean, files, again) is ErrorCode.CORRUPT_MESSAGE
    assert files.read_file(path) == bytes(content)


def test_random_histories_keep_the_latest_value_of_each_key() -> None:
    rng = random.Random(5)
    for _ in range(15):
        files = MemoryFiles()
        log = opened(files)
        believed: dict[bytes | None, Value] = {}
        now_ms = NOW_MS
        for _ in range(150):
            pairs = [
                (b"%d" % rng.randrange(12), None if rng.random() < 0.2 else b"%d" % rng.randrange(1000))
                for _ in range(rng.randint(1, 4))
            ]
            put(log, *pairs, now_ms=now_ms)
            believed.update(pairs)
            now_ms += rng.randrange(50)
            if rng.random() < 0.05:
                clean(files, log, now_ms)
        clean(files, log, now_ms)
        latest: dict[bytes | None, Value] = {}
        for _, key, value in records(log):
            latest[key] = value
        for key, value in believed.items():
            assert latest.get(key) == value
