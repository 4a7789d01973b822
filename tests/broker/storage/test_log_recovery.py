from __future__ import annotations

import errno
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import append_as_follower, find_duplicate
from anabranch.broker.storage.memory_files import MemoryFile, MemoryFiles
from anabranch.broker.storage.os_files import OsFiles
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import iter_batches, read_header
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.logs import SMALL, append, code_of, everything, opened
from tests.sim.files import DiskView, SimDisk
from tests.sim.loop import Process, SimLoop


def written(files: Files) -> PartitionLog:
    log = opened(files)
    for number in range(24):
        append(log, batch(2, producer=(7, 0, 2 * number)), epoch=number // 8)
    return log


def test_torn_write_at_any_position_is_truncated(files: Files) -> None:
    log = written(files)
    path = max(f"t-0/{name}" for name in files.names("t-0") if name.endswith(".log"))
    log.close()
    content = files.read_file(path)
    assert content is not None
    last_start = [position for position, _ in iter_batches(content)][-1]
    for size in range(last_start, len(content) + 1):
        files.write_file(path, content[:size])
        again = opened(files)
        whole = size == len(content)
        assert again.log_end_offset == (48 if whole else 46), f"cut at {size}"
        assert [header.base_offset for header in everything(again)] == list(range(0, again.log_end_offset, 2))
        assert files.open(path).size_bytes == (size if whole else last_start)
        assert (find_duplicate(again, batch(2, producer=(7, 0, 46))) is not None) == whole
        assert append(again, batch(2, producer=(7, 0, again.log_end_offset))).last_offset == again.log_end_offset - 1
        again.close()


def test_flipped_bit_at_any_position_of_the_last_segment_is_detected(files: Files) -> None:
    log = written(files)
    path = max(f"t-0/{name}" for name in files.names("t-0") if name.endswith(".log"))
    base = int(path[4:24])
    log.close()
    content = files.read_file(path)
    assert content is not None
    for position in [*range(16, read_header(content).size_bytes), 0, 8]:  # the epoch is not covered by any checksum
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        files.write_file(path, bytes(damaged))
        again = opened(files)
        assert again.log_end_offset == base, f"flipped at {position}"
        again.close()


def test_truncation_undone_by_a_power_failure_is_repeated(files: Files) -> None:
    """Schedule 371: a log is truncated within a segment and continues in the next; then the first one returns whole."""
    log = written(files)
    before = sorted(f"t-0/{name}" for name in files.names("t-0") if name.endswith(".log"))
    uncut = files.read_file(before[1])
    assert uncut is not None
    cut = int(before[2][4:24]) - 2
    log.truncate_to(cut)
    log.roll(cut)
    append(log, batch(2, producer=(8, 0, 0)), epoch=9)
    log.close()
    files.write_file(before[1], uncut)
    again = opened(files)
    assert again.log_end_offset == cut + 2
    assert [header.base_offset for header in everything(again)] == list(range(0, cut + 2, 2))
    assert everything(again)[-1].partition_leader_epoch == 9


@pytest.mark.parametrize("seed", range(5))
def test_truncated_records_do_not_return_after_a_power_failure(seed: int) -> None:
    """Whatever is lost of the page cache, truncated batches do not precede a later epoch."""
    disk = SimDisk(SimLoop(random.Random(seed)), random.Random(seed), "disk")
    files = DiskView(disk, Process("first"))
    log = written(files)
    log.flush()
    cut = log.log_end_offset - 3
    log.truncate_to(cut)
    end = log.log_end_offset
    append(log, batch(2, producer=(8, 0, 0)), epoch=9)
    disk.lose_power()
    again = opened(DiskView(disk, Process("second")))
    assert again.log_end_offset >= end, "what was kept had been flushed"
    assert [header.partition_leader_epoch for header in everything(again) if header.base_offset >= end] in ([], [9])


def test_gap_in_an_older_segment_ends_the_log(files: Files) -> None:
    log = written(files)
    assert len(log.segments) >= 3
    log.close()
    paths = sorted(f"t-0/{name}" for name in files.names("t-0") if name.endswith(".log"))
    content = files.read_file(paths[1])
    assert content is not None
    files.write_file(paths[1], content[:-1])
    again = opened(files)
    assert len(again.segments) == 2
    assert again.log_end_offset == int(paths[2][4:24]) - 2
    assert [header.base_offset for header in everything(again)] == list(range(0, again.log_end_offset, 2))
    assert sorted(name for name in files.names("t-0") if name.endswith(".log")) == [path[4:] for path in paths[:2]]


def test_reopened_log_has_the_same_state(files: Files) -> None:
    log = written(files)
    for close in (False, True):  # after a crash, and after a clean stop
        if close:
            log.close()
        again = opened(files)
        assert (again.log_start_offset, again.log_end_offset, again.size_bytes) == (0, 48, log.size_bytes)
        assert again.epochs.entries == log.epochs.entries == ((0, 0), (1, 16), (2, 32))
        assert everything(again) == everything(log)
        assert again.max_timestamp_ms == log.max_timestamp_ms
        one, other = again.producers.get(7), log.producers.get(7)
        assert one is not None
        assert other is not None
        assert (one.epoch, list(one.batches)) == (other.epoch, list(other.batches))


@pytest.mark.parametrize("damaged", [b"", b"nonsense", b"0\n1\n9 0\n9 1\n", None])
def test_the_epoch_checkpoint_is_rebuilt_from_the_batches(files: Files, damaged: bytes | None) -> None:
    written(files)
    if damaged is None:
        files.remove("t-0/leader-epoch-checkpoint")
    else:
        files.write_file("t-0/leader-epoch-checkpoint", damaged)
    assert opened(files).epochs.entries == ((0, 0), (1, 16), (2, 32))
    assert files.read_file("t-0/leader-epoch-checkpoint") == b"0\n3\n0 0\n1 16\n2 32\n"


def test_batches_correct_an_epoch_checkpoint_from_before_a_truncation(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk has refused its file, but not batches that fit into the last block; then the process is killed."""
    log = opened(files)
    append_all(log, [(0, 1), (5, 1), (10, 5), (15, 5)])
    log.flush()
    with monkeypatch.context() as full:

        def refused(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "no space left on device")

        full.setattr(files, "write_file", refused)
        assert code_of(log.truncate_to, 10) == ErrorCode.KAFKA_STORAGE_ERROR
        append_all(log, [(10, 3), (15, 3), (20, 6)])
    assert log.epochs.entries == ((1, 0), (3, 10), (6, 20))
    killed = PartitionLog.open(files, "t-0", SMALL, NOW_MS, recovery_point=log.recovery_point)
    assert (killed.log_end_offset, killed.epochs.entries) == (25, log.epochs.entries)


def test_truncation_lowers_the_recovery_point_before_it_changes_files(files: Files) -> None:
    """A power failure during it left a gap, if the log's timestamps did not rise: below the recovery point, gaps are
    those of compaction.
    """
    log = written(files)
    log.flush()
    seen: list[tuple[int, object]] = []
    log.durability.on_cut = lambda: seen.append((log.recovery_point, stored(files)))
    before, cut = stored(files), log.segments.active.base_offset - 4
    log.truncate_to(cut)
    assert seen == [(cut, before)]
    assert stored(files) != before


def stored(files: Files) -> dict[str, bytes | None]:
    return {name: files.read_file(f"t-0/{name}") for name in files.names("t-0")}


def append_all(log: PartitionLog, batches: list[tuple[int, int]]) -> None:
    for at in batches:
        append_as_follower(log, batch(5, at=at))


def test_file_names_equal_kafkas(files: Files) -> None:
    written(files).close()
    suffixes = {name.rpartition(".")[2] for name in files.names("t-0") if name[:20].isdigit()}
    assert suffixes == {"log", "index", "timeindex", "txnindex", "snapshot"}
    assert "leader-epoch-checkpoint" in files.names("t-0")


def test_log_start_beyond_a_torn_end_starts_the_log_over(files: Files) -> None:
    append(opened(files))
    log = opened(files, log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert append(log).first_offset == 10


def test_failed_write_refuses_the_append_and_keeps_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsFiles(tmp_path)
    log = opened(disk)
    append(log, batch(producer=(7, 0, 0)))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("os.pwritev", full)
    assert code_of(append, log, batch(producer=(7, 0, 1))) is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert log.log_end_offset == 1
    assert append(log, batch(producer=(7, 0, 1))).first_offset == 1
    monkeypatch.setattr("os.pread", full)
    assert code_of(log.read, 0, 100) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.close()


def test_flush_messages_flushes_after_its_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(MemoryFiles(), LogSettings(flush_messages=5))
    flushes: list[int] = []
    monkeypatch.setattr(MemoryFile, "flush", lambda _: flushes.append(log.log_end_offset))
    for _ in range(6):
        append(log, batch(2))
    assert len(flushes) == 2


def test_idle_log_uses_little_memory() -> None:
    import tracemalloc

    files = MemoryFiles()
    settings_of_all = LogSettings()
    PartitionLog.open(files, "warm-0", settings_of_all, NOW_MS)
    tracemalloc.start()
    try:
        logs = [PartitionLog.open(files, f"t-{index}", settings_of_all, NOW_MS) for index in range(100)]
        for log in logs:
            append(log, batch())
        assert tracemalloc.get_traced_memory()[0] / 100 < 6000
    finally:
        tracemalloc.stop()


def test_writer_killed_80_times_loses_no_acknowledged_record(tmp_path: Path) -> None:
    """See `killed_writer`: processes that append, roll, flush, compact, retain, and die by SIGKILL."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.broker.storage.killed_writer", str(tmp_path), "80", "7"],
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    figures = re.match(r"80 kills, (\d+) records and (\d+) values acknowledged, none lost; (.*)", ran.stdout)
    assert figures, ran.stdout
    assert int(figures[1]) > 2000
    for work in ("cleaned", "closed", "retained", "scanned segments"):
        assert re.search(rf"\d+ {work}", figures[3]), f"{work} never happened: {figures[3]}"
