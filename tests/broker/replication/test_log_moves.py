"""Moves between log directories: appends during the copy, and crashes."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.replication import log_moves
from anabranch.broker.replication.log_moves import LogMoves, copy_piece
from anabranch.broker.replication.partition import Partition, ReplicaRules
from anabranch.broker.storage.files import File, Files
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import find_duplicate
from anabranch.broker.storage.log_manager import LogManager
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.faulty_files import FaultyFiles
from tests.broker.storage.logs import append, code_of, everything, opened

TOPIC_ID = bytes(range(16))
CONFIG = TopicConfig(segment_bytes=1000)


def manager(disks: dict[str, Files]) -> LogManager:
    logs = LogManager(disks, BrokerSettings(), lambda _: CONFIG, lambda: NOW_MS)
    logs.load_checkpoints()
    return logs


def disks() -> dict[str, Files]:
    return {"/a": MemoryFiles(), "/b": MemoryFiles()}


def replica(logs: LogManager, index: int = 0) -> Partition:
    return Partition("t", index, TOPIC_ID, logs.open("t", index, TOPIC_ID), ReplicaRules(1))


def where(logs: LogManager) -> dict[str, list[str]]:
    return {one.path: [name for name in one.files.names("") if "." not in name and "checkpoint" not in name]
            for one in logs.directories}  # fmt: skip


def with_records(disks: dict[str, Files]) -> tuple[LogManager, Partition, LogMoves]:
    """A replica of five records on the first disk, and the moves of its log."""
    logs = manager(disks)
    partition = replica(logs)
    for _ in range(5):
        append(partition.log)
    return logs, partition, LogMoves(logs)


def finish(moves: LogMoves) -> int:
    return sum(1 for _ in iter(moves.step, False))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(log_moves, "STEP_BYTES", 500)
    yield


def test_new_logs_are_created_in_the_requested_or_emptiest_directory() -> None:
    logs = manager(disks())
    for index in range(4):
        logs.open("t", index, TOPIC_ID)
    assert where(logs) == {"/a": ["t-0", "t-2"], "/b": ["t-1", "t-3"]}
    moves = LogMoves(logs)
    for index in (4, 5, 6):
        assert code_of(moves.ask, "t", index, "/b", None) == ErrorCode.REPLICA_NOT_AVAILABLE
        logs.open("t", index, TOPIC_ID)
    assert where(logs)["/b"] == ["t-1", "t-3", "t-4", "t-5", "t-6"]
    assert code_of(moves.ask, "t", 0, "/c", replica(logs)) == ErrorCode.LOG_DIR_NOT_FOUND
    assert code_of(moves.ask, "t" * 215, 0, "/a", replica(logs)) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_completed_move_has_the_full_log_after_a_restart() -> None:
    media = disks()
    logs = manager(media)
    partition, moves = replica(logs), LogMoves(logs)
    append(partition.log, batch(producer=(8, 0, 0)), epoch=3)
    for sequence in range(29):
        append(partition.log, batch(producer=(7, 0, sequence)), epoch=3)
    partition.log.epochs.assign(4, 30)
    partition.log.increment_log_start_offset(5)
    before = everything(partition.log)
    moves.ask("t", 0, "/b", partition)
    assert moves.step() and len(moves) == 1
    append(partition.log, batch(producer=(7, 0, 29)), epoch=4)  # while it is being copied
    partition.log.epochs.assign(5, 31)
    assert finish(moves) > 3
    assert where(logs) == {"/a": [], "/b": ["t-0"]}
    after = partition.log
    assert everything(after)[:-1] == before
    assert (after.log_start_offset, after.log_end_offset) == (5, 31)
    assert after.epochs.entries == ((3, 5), (4, 30), (5, 31)), "also the epoch that has written nothing yet"
    assert find_duplicate(after, batch(producer=(8, 0, 0))) is not None, "also a producer whose batch was deleted"
    assert append(after, batch(producer=(7, 0, 30)), epoch=5).first_offset == 31
    logs.checkpoint([("t", 0, 31)])
    logs.close()
    again = manager(media)
    assert again.open("t", 0, TOPIC_ID).log_end_offset == 32
    assert (again.high_watermark("t", 0), where(again)) == (31, {"/a": [], "/b": ["t-0"]})
    assert not [name for name in media["/b"].names("") if name.endswith("-future")]


@pytest.mark.parametrize("clean", [True, False])
def test_move_continues_at_the_end_of_the_copy_after_a_restart(clean: bool) -> None:
    media = disks()
    logs = manager(media)
    partition, moves = replica(logs), LogMoves(logs)
    for _ in range(30):
        append(partition.log)
    moves.ask("t", 0, "/b", partition)
    assert moves.step() and moves.step()
    copied = logs.future("t", 0)
    assert copied is not None
    if clean:
        logs.close()
    again = manager(media)
    partition, moves = replica(again), LogMoves(again)
    moves.resume(partition)
    future = again.future("t", 0)
    assert future is not None and 0 < copied.log_end_offset == future.log_end_offset < 30
    finish(moves)
    assert where(again) == {"/a": [], "/b": ["t-0"]} and len(everything(partition.log)) == 30


def test_move_interrupted_before_its_last_step_is_finished_at_the_next_start() -> None:
    media = disks()
    logs, partition, moves = with_records(media)
    moves.ask("t", 0, "/b", partition)
    faulty = media["/b"] = FaultyFiles(media["/b"])
    logs.directories[1].files = faulty

    def dies(source: str, target: str) -> None:
        raise SystemExit(f"{source} -> {target}")

    faulty.rename = dies  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        finish(moves)
    del faulty.rename  # type: ignore[method-assign]
    assert where(logs)["/a"] == []
    again = manager(media)
    assert again.open("t", 0, TOPIC_ID).log_end_offset == 5
    assert where(again) == {"/a": [], "/b": ["t-0"]}


def test_move_can_be_cancelled_or_redirected() -> None:
    media: dict[str, Files] = {**disks(), "/c": MemoryFiles()}
    logs = manager(media)
    partition, moves = replica(logs), LogMoves(logs)
    append(partition.log)
    moves.ask("t", 0, "/b", partition)
    moves.ask("t", 0, "/b", partition)
    moves.ask("t", 0, "/c", partition)
    assert [one.path for one, _, _, is_future in logs.open_logs() if is_future] == ["/c"]
    moves.ask("t", 0, "/a", partition)
    assert len(moves) == 0 and logs.future("t", 0) is None
    assert [one.log_count for one in logs.directories] == [1, 0, 0]
    moves.ask("t", 0, "/b", partition)
    moves.forget(partition)
    logs.delete("t", 0)
    assert all(not name.endswith("-future") for files in media.values() for name in files.names(""))
    assert [one.log_count for one in logs.directories] == [0, 0, 0]


def test_failing_disk_delays_a_move() -> None:
    media = disks()
    media["/b"] = full = FaultyFiles(media["/b"])
    logs, partition, moves = with_records(media)
    moves.ask("t", 0, "/b", partition)
    full.full = True
    assert not moves.step() and len(moves) == 1
    full.full = False
    finish(moves)
    assert len(everything(partition.log)) == 5 and where(logs)["/b"] == ["t-0"]


def test_move_off_a_full_disk_is_finished() -> None:
    media = disks()
    media["/a"] = full = FaultyFiles(media["/a"])
    logs, partition, moves = with_records(media)
    logs.checkpoint([("t", 0, 5)])
    moves.ask("t", 0, "/b", partition)
    full.full = True
    finish(moves)
    assert where(logs) == {"/a": [], "/b": ["t-0"]} and len(everything(partition.log)) == 5
    assert append(partition.log).first_offset == 5
    full.full = False
    logs.close()
    assert manager(media).high_watermark("t", 0) == 5


@pytest.mark.parametrize("disk", ["/a", "/b"])
@pytest.mark.parametrize("step", ["rename", "flush_directory"])
def test_move_continues_after_a_failed_step_of_the_swap(disk: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    media = disks()
    logs, partition, moves = with_records(media)
    moves.ask("t", 0, "/b", partition)
    copied = logs.future("t", 0)
    assert copied is not None
    copied_to(partition.log, copied)
    with monkeypatch.context() as failing:

        def fails(*_: object) -> None:
            raise OSError(errno.EIO, "input/output error")

        failing.setattr(media[disk], step, fails)
        assert not moves.step() and len(moves) == 1
    finish(moves)
    assert where(logs) == {"/a": [], "/b": ["t-0"]} and len(everything(partition.log)) == 5


def test_move_that_could_not_begin_can_be_requested_again() -> None:
    media = disks()
    media["/b"] = full = FaultyFiles(media["/b"])
    logs = manager(media)
    partition, moves = replica(logs), LogMoves(logs)
    append(partition.log)
    full.room_bytes = 10  # an empty log fits, its topic id does not
    assert code_of(moves.ask, "t", 0, "/b", partition) == ErrorCode.KAFKA_STORAGE_ERROR
    assert logs.future("t", 0) is None and [one.log_count for one in logs.directories] == [1, 0]
    full.room_bytes = None
    moves.ask("t", 0, "/b", partition)
    finish(moves)
    assert where(logs) == {"/a": [], "/b": ["t-0"]}


def test_copy_that_cannot_be_opened_does_not_stop_its_replica() -> None:
    """LeaderAndIsr would fail as a whole, with all partitions of the broker."""
    media = disks()
    media["/b"] = full = FaultyFiles(media["/b"])
    logs = manager(media)
    partition, moves = replica(logs), LogMoves(logs)
    append(partition.log)
    moves.ask("t", 0, "/b", partition)
    future = logs.future("t", 0)
    assert future is not None
    media["/b"].remove(f"{future.directory}/{0:020d}.log")  # killed before it was there
    again = manager(media)
    partition, moves = replica(again), LogMoves(again)
    create, full.open = full.open, refused  # type: ignore[method-assign, assignment]
    moves.resume(partition)
    assert len(moves) == 0
    full.open = create  # type: ignore[method-assign]
    moves.ask("t", 0, "/b", partition)
    finish(moves)
    assert where(again) == {"/a": [], "/b": ["t-0"]}
    assert not [name for name in media["/b"].names("") if name.endswith("-future")]
    assert [one.log_count for one in again.directories] == [0, 1]


def refused(path: str) -> File:
    raise OSError(errno.ENOSPC, "no space left on device", path)


def copied_to(current: PartitionLog, future: PartitionLog) -> None:
    for _ in range(100):
        if copy_piece(current, future):
            return
    raise AssertionError("a copy that never has everything")


def test_copy_follows_truncation_and_new_appends() -> None:
    current, future = opened(MemoryFiles()), opened(MemoryFiles())
    for _ in range(10):
        append(current, epoch=1)
    for _ in range(4):
        append(current, epoch=2)
    copied_to(current, future)
    current.truncate_to(6)
    for _ in range(9):
        append(current, batch(value=b"another"), epoch=3)
    copied_to(current, future)
    assert everything(future) == everything(current)
    assert future.epochs.entries == current.epochs.entries
    current.truncate_to(3)
    copied_to(current, future)
    assert future.log_end_offset == 3
    append(current, epoch=5)
    current.truncate_fully_and_start_at(40)
    append(current, epoch=6)
    copied_to(current, future)
    assert (future.log_start_offset, future.log_end_offset) == (40, 41)
    current.increment_log_start_offset(41)
    copied_to(current, future)
    assert future.log_start_offset == 41
