"""Opening a log: trusted files, scanned files, and the effects of damage."""

from __future__ import annotations

import logging

import pytest

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_follower, append_as_leader
from anabranch.broker.storage.log_loader import snapshot_offsets
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.broker.storage.segment import Segment
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import read_header
from anabranch.protocol.records.control import build_end_transaction
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.faulty_files import FaultyFiles
from tests.broker.storage.logs import SMALL, append, code_of, everything, opened


def reopened(files: Files, recovery_point: int, *, clean: bool = True) -> PartitionLog:
    return PartitionLog.open(files, "t-0", SMALL, NOW_MS, recovery_point=recovery_point, clean=clean)


def end(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    marker = build_end_transaction(
        commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=3, timestamp_ms=NOW_MS
    )
    append_as_leader(log, marker, leader_epoch=2, now_ms=NOW_MS, origin="coordinator")


def written(files: Files) -> PartitionLog:
    """Producers that come and go, an aborted transaction, an open one, and five segments."""
    log = PartitionLog.open(files, "t-0", SMALL, NOW_MS)
    for number in range(12):
        append(log, batch(2, producer=(7, 0, 2 * number)), epoch=number // 8)
    append(log, batch(2, producer=(8, 0, 0), transactional=True))
    append(log, batch(2, producer=(9, 0, 0), transactional=True))
    end(log, 8, commit=False)
    for number in range(12, 24):
        append(log, batch(2, producer=(7, 0, 2 * number)), epoch=2)
    return log


def state(log: PartitionLog) -> tuple[object, ...]:
    producers = [
        (one.producer_id, one.epoch, one.coordinator_epoch, one.transaction_start, list(one.batches))
        for one in log.producers.entries
    ]
    return (
        (log.log_start_offset, log.log_end_offset, log.size_bytes, log.epochs.entries),
        sorted(producers),
        log.producers.aborted,
        log.last_stable_offset(log.log_end_offset),
        [(segment.indexes.max_timestamp_ms, segment.indexes.first_timestamp_ms) for segment in log.segments],
        [segment.indexes.offsets.to_bytes() for segment in log.segments],
        everything(log),
    )


def test_log_after_a_clean_shutdown_is_opened_without_a_scan(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(files)
    log.close()
    assert log.recovery_point == log.log_end_offset
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "recover", None)
        again = reopened(files, log.recovery_point)
    assert again.scanned_segments == 0
    assert state(again) == state(log)
    assert append(again, batch(2, producer=(7, 0, 48))).first_offset == log.log_end_offset


def test_log_after_a_crash_is_scanned_from_the_recovery_point(files: Files) -> None:
    log = written(files)
    while log.durability.has_sealed_unflushed:
        log.durability.flush_sealed()
    append(log, batch(2, producer=(7, 0, 48)))
    assert log.recovery_point == log.segments.active.base_offset
    again = reopened(files, log.recovery_point, clean=False)
    assert again.scanned_segments == 1
    assert state(again) == state(log)
    older = [segment.base_offset for segment in log.segments][-3]
    assert reopened(files, older, clean=False).scanned_segments == 3
    assert reopened(files, 0, clean=False).scanned_segments == len(log.segments)


def test_stale_clean_shutdown_mark_is_ignored(files: Files) -> None:
    log = written(files)
    log.close()
    recovery_point = log.recovery_point
    later = reopened(files, recovery_point)
    append(later, batch(2, producer=(7, 0, 48)))
    again = reopened(files, recovery_point)
    assert again.scanned_segments == 1
    assert state(again) == state(later)


def test_truncated_last_segment_ends_the_log(files: Files) -> None:
    log = written(files)
    log.close()
    active = log.segments.active
    *_, (position, header) = list(active.headers())
    path = f"t-0/{active.base_offset:020d}.log"
    files.write_file(path, (files.read_file(path) or b"")[:position])
    again = reopened(files, log.recovery_point)
    assert again.log_end_offset == header.base_offset
    assert again.recovery_point == header.base_offset


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex", "snapshot"])
@pytest.mark.parametrize("damage", ["missing", "torn", "scrambled"])
def test_damaged_or_missing_index_files_are_rebuilt(files: Files, suffix: str, damage: str) -> None:
    log = written(files)
    log.close()
    expected = state(log)
    for name in [name for name in files.names("t-0") if name.endswith(f".{suffix}")]:
        content = files.read_file(f"t-0/{name}")
        assert content is not None
        if damage == "missing":
            files.remove(f"t-0/{name}")
        elif content:
            files.write_file(f"t-0/{name}", content[:-3] if damage == "torn" else b"\xff" + content[1:-1] + b"\xff")
    again = reopened(files, log.recovery_point)
    assert state(again) == expected


@pytest.mark.parametrize("size_bytes", [0, 1, 100, -1])
def test_truncated_flushed_segment_is_detected(files: Files, size_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    log = written(files)
    log.close()
    headers = everything(log)
    second = list(log.segments)[1]
    content = files.read_file(f"t-0/{second.base_offset:020d}.log")
    assert content is not None
    files.write_file(f"t-0/{second.base_offset:020d}.log", content[:size_bytes])
    again = reopened(files, log.recovery_point)
    assert len(again.segments) == 2
    assert again.recovery_point == again.log_end_offset
    assert everything(again) == [header for header in headers if header.next_offset <= again.log_end_offset]
    assert [record.levelno for record in caplog.records][-1] == logging.ERROR
    assert f"truncated the log to {again.log_end_offset}," in caplog.text


def test_corrupt_batches_are_not_served(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    log = written(files)
    log.close()
    second = list(log.segments)[1]
    path = f"t-0/{second.base_offset:020d}.log"
    sound = files.read_file(path)
    assert sound is not None
    headers = [header for _, header in second.headers()]
    for victim, (position, header) in enumerate(list(second.headers())[:3]):
        rotten = bytearray(sound)
        rotten[position + 62] ^= 1
        files.write_file(path, bytes(rotten))
        again = reopened(files, log.recovery_point)
        assert again.scanned_segments == 0
        for other in headers[:victim]:
            assert len(again.read(other.base_offset, 1)) == other.size_bytes, "what is sound is served"
        for _ in range(2):
            assert code_of(again.read, header.base_offset, 10_000) is ErrorCode.CORRUPT_MESSAGE
        assert caplog.text.count("is damaged") == victim + 1
        for _ in range(2):
            assert len(again.read(headers[3].base_offset, 1)) == headers[3].size_bytes


def test_impossible_batch_length_ends_a_walk(files: Files) -> None:
    log = written(files)
    log.close()
    second = list(log.segments)[1]
    path = f"t-0/{second.base_offset:020d}.log"
    sound = files.read_file(path)
    assert sound is not None
    for zeros in (8, 61, 200):
        files.write_file(path, bytes(zeros) + sound[zeros:])
        again = reopened(files, log.recovery_point)
        assert again.scanned_segments == 0
        assert code_of(again.read, second.base_offset, 10_000) is ErrorCode.CORRUPT_MESSAGE
        if zeros > 8:
            assert code_of(again.read, second.base_offset + 2, 10_000) is ErrorCode.CORRUPT_MESSAGE


def test_truncation_restores_producers_from_a_snapshot(files: Files) -> None:
    log = written(files)
    expected = PartitionLog.open(files, "u-0", SMALL, NOW_MS)
    for number in range(10):
        append(expected, batch(2, producer=(7, 0, 2 * number)), epoch=number // 8)
    log.truncate_to(20)
    assert state(log)[:4] == state(expected)[:4]
    assert everything(log) == everything(expected)
    assert max(snapshot_offsets(files, "t-0")) <= 20
    notes: list[int] = []
    log.flush()
    log.durability.on_cut = lambda: notes.append(log.recovery_point)
    log.cleaned_to = 15
    log.truncate_to(10)
    assert (notes, log.recovery_point, log.cleaned_to) == ([10], 10, 10)
    log.truncate_to(10)
    assert notes == [10]
    log.truncate_fully_and_start_at(100)
    assert (log.recovery_point, snapshot_offsets(files, "t-0")) == (0, [])


@pytest.mark.parametrize("shorter", [True, False])
def test_removal_of_a_snapshot_behind_the_log_end_is_flushed(shorter: bool) -> None:
    """Otherwise a power failure brings it back when the log is as long again, with other batches."""
    files = FaultyFiles(MemoryFiles())
    log = written(files)
    log.close()
    active = log.segments.active
    *_, (position, _) = list(active.headers())
    if shorter:
        active.file.truncate(position)
    files.flushed.clear()
    again = reopened(files, log.recovery_point)
    assert (again.log_end_offset < log.log_end_offset) is shorter
    assert files.flushed == (["t-0"] if shorter else [])


def test_snapshots_are_deleted_with_their_segments(files: Files) -> None:
    log = written(files)
    bases = [segment.base_offset for segment in log.segments]
    assert snapshot_offsets(files, "t-0") == bases[1:]
    log.increment_log_start_offset(bases[2])
    assert snapshot_offsets(files, "t-0") == [segment.base_offset for segment in log.segments] == bases[2:]


def test_producer_state_survives_deletion_of_its_batches(files: Files) -> None:
    log = written(files)
    log.increment_log_start_offset(log.segments.active.base_offset)
    log.close()
    again = reopened(files, log.recovery_point)
    assert again.producers.get(9) is not None, "its transaction is open"
    assert again.last_stable_offset(again.log_end_offset) == log.last_stable_offset(log.log_end_offset)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("deleted", [1, 5, 6, 7, 12, 13, 16])
def test_recovered_records_restore_their_leader_epochs(files: Files, deleted: int, clean: bool) -> None:
    """Killed between a deletion and the checkpoint of the new log start."""
    log = PartitionLog.open(files, "t-0", LogSettings(), NOW_MS)
    for number in range(8):
        append(log, batch(2), epoch=number // 3)
    before = log.epochs.entries
    assert before == ((0, 0), (1, 6), (2, 12))
    log.increment_log_start_offset(deleted)
    log.close()
    for _ in range(2):
        again = PartitionLog.open(files, "t-0", LogSettings(), NOW_MS, recovery_point=16, clean=clean)
        assert (again.log_start_offset, again.epochs.entries) == (0, before)
        again.close()
    partly = PartitionLog.open(files, "t-0", LogSettings(), NOW_MS, recovery_point=16, clean=clean, log_start_offset=5)
    assert [partly.epochs.end_offset_for(epoch, 16) for epoch in range(3)] == [(0, 6), (1, 12), (2, 16)]


def test_epochs_of_an_old_checkpoint_end_at_the_log_start(files: Files) -> None:
    """The disk refused the checkpoint when a follower restarted at its leader's log start."""
    log = PartitionLog.open(files, "t-0", LogSettings(), NOW_MS)
    for epoch in (0, 0, 1):
        append(log, batch(2), epoch=epoch)
    old = files.read_file("t-0/leader-epoch-checkpoint")
    assert old is not None
    log.truncate_fully_and_start_at(18)
    log.close()
    files.write_file("t-0/leader-epoch-checkpoint", old)
    again = reopened(files, 18)
    again.epochs.assign(7, again.log_end_offset)
    assert [again.epochs.end_offset_for(epoch, 18)[1] for epoch in (0, 1, 7)] == [18, 18, 18]


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (["log.cleaned", "index.swap"], False),
        (["index.cleaned", "timeindex.cleaned", "log.cleaned"], False),
        (["log.swap", "index.swap", "timeindex.swap"], True),
        (["log.swap"], True),
    ],
)
def test_interrupted_compaction_is_undone_or_finished(left: list[str], kept: bool) -> None:
    files = MemoryFiles()
    log = written(files)
    before = everything(log)
    log.close()
    first, second, third = [segment.base_offset for segment in log.segments][:3]
    content = files.read_file(f"t-0/{first:020d}.log") or b""
    following = files.read_file(f"t-0/{second:020d}.log") or b""
    for suffix in left:
        name = f"t-0/{first:020d}.{suffix}"
        files.write_file(name, content + following if "log" in suffix else b"torn")
    files.write_file(f"t-0/{third:020d}.log.deleted", b"gone")
    again = reopened(files, log.recovery_point)
    assert everything(again) == before
    assert len(again.segments) == len(log.segments) - kept
    assert not [name for name in files.names("t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_lost_segment_between_others_ends_the_log(files: Files) -> None:
    """A power failure may take the content of a file, and leave the next one."""
    log = written(files)
    lost = list(log.segments)[-3].base_offset
    for suffix in ("log", "index", "timeindex", "txnindex"):
        files.write_file(f"t-0/{lost:020d}.{suffix}", b"")
    again = reopened(files, 0, clean=False)
    assert (again.log_end_offset, again.durability.reached) == (lost, log.segments.active.base_offset)


def test_follower_of_a_compacted_log_keeps_its_gaps_after_a_kill(files: Files) -> None:
    log = opened(files, SMALL)
    for number in range(30):
        append_as_follower(log, batch(1, at=(3 * number, 1), value=b"x" * 100))
    again = reopened(files, 0, clean=False)
    assert (again.log_end_offset, again.durability.reached) == (log.log_end_offset, 0)
    stored = [header.base_offset for segment in again.segments for _, header in segment.headers()]
    assert stored == list(range(0, 90, 3))


@pytest.mark.parametrize("start", [2**31, 2**32, 2**40])
@pytest.mark.parametrize("clean", [True, False])
def test_follower_keeps_records_behind_a_long_gap_at_the_start(start: int, clean: bool, files: Files) -> None:
    """A new replica of a compacted log, whose first billions of records have been removed."""
    log = opened(files, SMALL)
    for number in range(30):
        append_as_follower(log, batch(1, at=(start + 3 * number, 1), value=b"x" * 100))
    if clean:
        log.close()
    again = reopened(files, log.recovery_point, clean=clean)
    assert (again.log_start_offset, again.log_end_offset) == (0, log.log_end_offset)
    assert again.scanned_segments == (0 if clean else len(log.segments))
    stored = [header.base_offset for segment in again.segments for _, header in segment.headers()]
    assert stored == list(range(start, start + 90, 3))
    assert read_header(again.read(0, 1000)).base_offset == start


@pytest.mark.parametrize("suffix", ["timeindex", "txnindex"])
def test_index_of_zeros_is_not_trusted(suffix: str, files: Files) -> None:
    """A file system that has written the size before the content leaves zeros."""
    log = written(files)
    log.close()
    path = f"t-0/{log.segments.active.base_offset:020d}.{suffix}"
    files.write_file(path, bytes(2 * {"timeindex": 12, "txnindex": 34}[suffix]))
    again = reopened(files, log.recovery_point)
    assert again.scanned_segments == 1
    assert state(again) == state(log)
