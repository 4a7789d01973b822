"""The recovery point is never beyond the flushed offset, in memory or on disk."""

from __future__ import annotations

import errno
import logging

import pytest

from anabranch.broker.storage.durability import Durability
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode
from tests.broker.storage.faulty_files import FaultyFiles
from tests.broker.storage.logs import append, code_of, opened


def filled(segments: int) -> PartitionLog:
    log = opened(FaultyFiles(MemoryFiles()))
    while len(log.segments) < segments:
        append(log)
    return log


def flushed(log: PartitionLog) -> list[str]:
    files = log._files
    assert isinstance(files, FaultyFiles)
    names, files.flushed = files.flushed, []
    return [name for name in names if name.endswith(".log")]


def test_flush_sealed_flushes_one_sealed_segment_and_not_the_active_one() -> None:
    log = filled(4)
    durability, bases = log.durability, [segment.base_offset for segment in log.segments]
    for number in (1, 2, 3):
        assert durability.has_sealed_unflushed
        durability.flush_sealed()
        assert durability.recovery_point == bases[number]
        assert flushed(log) == [f"t-0/{bases[number - 1]:020d}.log"]
    assert not durability.has_sealed_unflushed
    durability.flush_sealed()
    assert (durability.recovery_point, flushed(log)) == (bases[3], [])


def test_full_flush_skips_flushed_segments() -> None:
    log = filled(3)
    log.durability.flush_sealed()
    flushed(log)
    log.flush()
    assert (log.recovery_point, log.durability.unflushed) == (log.log_end_offset, 0)
    assert len(flushed(log)) == 2
    append(log)
    log.flush()
    assert len(flushed(log)) == 1


def test_names_of_files_are_flushed_once_after_a_change() -> None:
    log = filled(2)
    log.flush()
    files = log._files
    assert isinstance(files, FaultyFiles)
    files.flushed.clear()
    log.durability.flush_names()
    assert files.flushed == []
    log.durability.names_changed()
    log.durability.flush_names()
    log.durability.flush_names()
    assert files.flushed == ["t-0"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_only_a_full_disk_error_is_retriable(code: int, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(2)
    durability = log.durability

    def refuse() -> None:
        raise OSError(code, "no")

    assert code_of(durability.attempt, refuse, 5) is ErrorCode.KAFKA_STORAGE_ERROR
    assert durability.recovery_point == 0
    full = code != errno.EIO
    assert (durability.failure is None) == full == durability.has_sealed_unflushed
    assert [record.levelno for record in caplog.records] == ([] if full else [logging.ERROR])
    if full:
        append(log)
    else:
        assert code_of(append, log) is ErrorCode.KAFKA_STORAGE_ERROR


def test_attempt_moves_the_recovery_point_forward_only() -> None:
    durability = filled(3).durability
    durability.attempt(lambda: None, 4)
    durability.attempt(lambda: None)
    assert durability.recovery_point == 4


def test_truncation_below_the_recovery_point_notifies_once() -> None:
    log = filled(2)
    log.flush()
    notified: list[int] = []
    known: Durability = log.durability
    known.on_cut = lambda: notified.append(known.recovery_point)
    known.cut_back(log.log_end_offset)
    assert notified == []
    known.cut_back(3)
    known.cut_back(3)
    known.cut_back(5)
    assert (notified, known.recovery_point) == ([3], 3)
