"""A log on a disk that is full, tears writes, or fails to flush."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable

import pytest

from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.faulty_files import Crash, FaultyFile, FaultyFiles
from tests.broker.storage.logs import SMALL, append, code_of, everything


def opened(files: FaultyFiles, settings: LogSettings = SMALL, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(files, "t-0", settings, NOW_MS, recovery_point=recovery_point)


def numbered(number: int) -> bytes:
    return batch(2, producer=(7, 0, 2 * number))


@pytest.mark.parametrize("torn", [False, True])
def test_log_on_a_full_disk_refuses_appends_until_there_is_space(torn: bool) -> None:
    """With every number of free bytes, also in the middle of rolling a segment."""
    refused_at = set()
    for room_bytes in range(0, 2700, 37):
        files = FaultyFiles(MemoryFiles())
        log = opened(files)
        files.room_bytes, files.torn = room_bytes, torn
        acknowledged = 0
        for number in range(30):
            try:
                append(log, numbered(number), epoch=number // 10)
            except KafkaError as refusal:
                assert refusal.code is ErrorCode.KAFKA_STORAGE_ERROR
                break
            acknowledged = number + 1
        assert log.log_end_offset == 2 * acknowledged
        assert len(everything(log)) == acknowledged, "reads go on"
        assert code_of(append, log, numbered(acknowledged), epoch=2) is ErrorCode.KAFKA_STORAGE_ERROR
        survivor = opened(FaultyFiles(files.inner))
        assert survivor.log_end_offset == log.log_end_offset, "and a crash now costs nothing"
        files.room_bytes = None
        for number in range(acknowledged, acknowledged + 15):
            assert append(log, numbered(number), epoch=5).first_offset == 2 * number
        assert everything(opened(FaultyFiles(files.inner))) == everything(log)
        assert opened(FaultyFiles(files.inner)).epochs.entries == log.epochs.entries
        refused_at.add(acknowledged)
    assert len(refused_at) > 20


def test_a_log_opens_on_a_full_disk() -> None:
    files = FaultyFiles(MemoryFiles())
    log = opened(files)
    for number in range(30):
        append(log, numbered(number))
    files.inner.remove("t-0/leader-epoch-checkpoint")
    for name in files.names("t-0"):
        if not name.endswith(".log"):
            files.inner.remove(f"t-0/{name}")
    files.full = True
    again = opened(files)
    assert everything(again) == everything(log)
    assert again.epochs.entries == log.epochs.entries
    files.full = False
    again.close()
    assert PartitionLog.open(
        files, "t-0", SMALL, NOW_MS, recovery_point=again.recovery_point, clean=True
    ).epochs.entries == ((1, 0),)


def test_log_started_over_on_a_full_disk_accepts_appends_when_there_is_space() -> None:
    files = FaultyFiles(MemoryFiles())
    log = opened(files)
    for number in range(30):
        append(log, numbered(number))
    files.full = True
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, log.read(100, 1000)) == (100, 100, 0, b"")
    assert code_of(append, log, numbered(0), epoch=2) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(OSError, match="space"):
        log.flush()
    assert log.apply_retention(NOW_MS + 10**12) == 0
    assert log.truncate_to(90), "again, elsewhere"
    assert opened(FaultyFiles(files.inner)).log_end_offset == 0, "a crash leaves it empty"
    for name in files.names("t-0"):
        files.inner.remove(f"t-0/{name}")  # what that life has made
    files.full = False
    for number in range(15):
        assert append(log, numbered(number), epoch=2).first_offset == 90 + 2 * number
    log.flush()
    again = opened(FaultyFiles(files.inner))
    assert everything(again) == everything(log)
    assert (again.log_start_offset, again.epochs.entries) == (90, ((2, 90),))


def test_epoch_assigned_on_a_full_disk_is_written_before_its_first_batch() -> None:
    files = FaultyFiles(MemoryFiles())
    log = opened(files)
    append(log, epoch=1)
    files.full = True
    log.epochs.assign(4, 1)
    assert log.epochs.latest_epoch == 4
    assert b"4 1" not in (files.read_file("t-0/leader-epoch-checkpoint") or b"")
    with pytest.raises(OSError, match="space"):
        log.flush()
    assert log.recovery_point == 0
    files.full = False
    log.roll(1)
    files.full = True
    assert code_of(log.durability.flush_sealed) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.recovery_point, log.durability.failure) == (0, None)
    files.full = False
    log.flush()
    assert b"4 1" in (files.read_file("t-0/leader-epoch-checkpoint") or b"")
    assert log.recovery_point == 1


def test_failed_flush_refuses_appends_until_the_log_is_reopened(caplog: pytest.LogCaptureFixture) -> None:
    files = FaultyFiles(MemoryFiles())
    log = opened(files, LogSettings(flush_messages=5))
    append(log, numbered(0))
    append(log, numbered(1))
    files.failing_flush = True
    assert code_of(append, log, numbered(2)) is ErrorCode.KAFKA_STORAGE_ERROR
    files.failing_flush = False
    assert code_of(append, log, numbered(3)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert "takes no more appends" in caplog.text
    assert log.recovery_point == 0
    assert log.read(0, 1000)
    with pytest.raises(OSError, match="flush"):
        log.close()
    again = opened(files)
    assert again.log_end_offset >= 4
    assert append(again, numbered(again.log_end_offset // 2)).last_offset == again.log_end_offset - 1


def test_read_error_is_not_treated_as_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles(MemoryFiles())
    log = opened(files)
    append(log)

    def broken(*_: object) -> bytes:
        raise OSError(5, "input/output error")

    monkeypatch.setattr("tests.broker.storage.faulty_files.FaultyFile.read", broken)
    assert code_of(log.read, 0, 100) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def appends(log: PartitionLog) -> None:
    for number in range(10, 40):
        append(log, numbered(number), epoch=number // 8)


def truncates(log: PartitionLog) -> None:
    appends(log)
    log.truncate_to(6)
    for number in range(3, 20):
        append(log, numbered(number), epoch=9)


def retains(log: PartitionLog) -> None:
    log.increment_log_start_offset(15)
    appends(log)


def closes(log: PartitionLog) -> None:
    appends(log)
    log.close()


def starts_over(log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(500)
    append(log)


@pytest.mark.parametrize("work", [appends, truncates, retains, closes, starts_over])
@pytest.mark.parametrize("torn", [False, True])
def test_crash_at_any_operation_keeps_acknowledged_records(work: Callable[[PartitionLog], None], torn: bool) -> None:
    crashes = 0
    while True:
        files = FaultyFiles(MemoryFiles())
        log = opened(files)
        for number in range(10):
            append(log, numbered(number))
        log.flush()
        files.crash_after, files.torn = crashes, torn
        try:
            work(log)
        except Crash:
            crashes += 1
        else:
            break
        again = opened(FaultyFiles(files.inner), recovery_point=log.recovery_point)
        assert again.log_end_offset >= log.log_end_offset or work in (truncates, starts_over)
        headers = everything(again)
        assert [header.base_offset for header in headers] == [
            *range(again.log_start_offset, again.log_end_offset, 2 if again.log_end_offset < 500 else 1)
        ]
        if work is not starts_over:
            assert again.log_start_offset <= log.log_start_offset
            assert again.log_end_offset >= 6
            assert again.producers.get(7) is not None
            number = again.log_end_offset // 2
            assert append(again, numbered(number), epoch=20).first_offset == 2 * number
    assert crashes > (3 if work is starts_over else 15)


@pytest.mark.parametrize("refused", ["truncate", "remove"])
@pytest.mark.parametrize("succeed", [0, 1])
def test_refused_truncation_leaves_a_log_that_can_be_used(
    refused: str, succeed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy-on-write file system needs space also to make a file shorter, or to remove one."""
    files = FaultyFiles(MemoryFiles())
    log = opened(files)
    for number in range(40):
        append(log, numbered(number))
    segments, left = len(log.segments), succeed
    owner, real = (FaultyFile, FaultyFile.truncate) if refused == "truncate" else (FaultyFiles, FaultyFiles.remove)

    def refuse(of: object, argument: object) -> None:
        nonlocal left
        if refused == "truncate" or str(argument).endswith(".log"):
            if left == 0:
                raise OSError(errno.ENOSPC, "no space left on device")
            left -= 1
        real(of, argument)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(owner, refused, refuse)
        with pytest.raises(OSError, match="space") if refused == "remove" or not succeed else contextlib.nullcontext():
            log.truncate_to(26)
    if refused == "remove":
        assert len(log.segments) == segments - succeed
    assert [header.base_offset for header in everything(log)] == list(range(0, log.log_end_offset, 2))
    log.truncate_to(26)
    append(log, numbered(13), epoch=2)
    found = [(header.base_offset, header.partition_leader_epoch) for header in everything(log)]
    assert found == [*((offset, 1) for offset in range(0, 26, 2)), (26, 2)]
    assert everything(opened(files.inner)) == everything(log)  # type: ignore[arg-type]


def test_truncated_log_whose_rest_cannot_be_read_ends_where_it_was_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is shorter already when the read fails that looks for the newest timestamp left."""
    files = FaultyFiles(MemoryFiles())
    log = opened(files)
    for number in range(40):
        append(log, numbered(number))
    truncate, read, failing = FaultyFile.truncate, FaultyFile.read, False

    def shorten(of: FaultyFile, size_bytes: int) -> None:
        nonlocal failing
        truncate(of, size_bytes)
        failing = True

    def fail_once(of: FaultyFile, position: int, size_bytes: int) -> bytes:
        nonlocal failing
        if failing:
            failing = False
            raise OSError(errno.EIO, "input/output error")
        return read(of, position, size_bytes)

    with monkeypatch.context() as patched:
        patched.setattr(FaultyFile, "truncate", shorten)
        patched.setattr(FaultyFile, "read", fail_once)
        with pytest.raises(OSError, match="input/output"):
            log.truncate_to(26)
    assert [header.base_offset for header in everything(log)] == list(range(0, 26, 2))
    append(log, numbered(13), epoch=2)
    assert everything(opened(files.inner)) == everything(log)  # type: ignore[arg-type]


def test_refused_removal_of_all_records_leaves_a_log_that_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFiles(MemoryFiles())
    log = opened(files)
    for number in range(40):
        append(log, numbered(number))
    log.flush()
    last = log.segments.active.base_offset
    remove = FaultyFiles.remove

    def refuse(of: FaultyFiles, path: str) -> None:
        if path.endswith(".log") and not path.endswith(f"{last:020d}.log"):
            raise OSError(errno.EIO, "input/output error")
        remove(of, path)

    with monkeypatch.context() as patched:
        patched.setattr(FaultyFiles, "remove", refuse)
        with pytest.raises(OSError, match="input/output"):
            log.truncate_fully_and_start_at(200)
    assert (log.log_end_offset, log.recovery_point) == (last, last)
    append(log, numbered(last // 2))
    assert [header.base_offset for header in everything(log)] == list(range(0, last + 2, 2))
    log.truncate_fully_and_start_at(200)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (200, 200, 0)
