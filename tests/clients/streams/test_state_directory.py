"""An application's state directory belongs to one instance at a time."""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

import pytest

from anabranch.clients.directory_lock import DirectoryInUse
from anabranch.clients.streams.state_directory import OUTDATED_AFTER_S, StateDirectory
from anabranch.clients.streams.task_disk import DATA_FILE, TaskDisk, Write
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.file_paths import InvalidPath


def test_process_id_survives_restart_and_differs_between_directories(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path, "app", random.Random(1))
    with pytest.raises(DirectoryInUse):
        StateDirectory(tmp_path, "app", random.Random(2))
    other = StateDirectory(tmp_path, "other", random.Random(2))
    first.close()
    again = StateDirectory(tmp_path, "app", random.Random(3))
    assert len(first.process_id) == 16
    assert again.process_id == first.process_id != other.process_id
    again.close()
    other.close()


@pytest.mark.parametrize("left", [b"", bytes(32), b"0123456789abcde", b"0123456789", b"\xff" * 32])
def test_damaged_process_id_is_replaced(left: bytes, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "process").write_bytes(left)
    first = StateDirectory(tmp_path, "app", random.Random(1))
    assert len(first.process_id) == 16
    first.close()
    again = StateDirectory(tmp_path, "app", random.Random(2))
    assert again.process_id == first.process_id
    again.close()


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "a/b", "a\0b"])
def test_application_id_outside_of_state_directory_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidPath):
        StateDirectory(tmp_path / "state", name, random.Random(1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../../evil", "../evil", "a/b"])
def test_task_name_outside_of_directory_is_neither_opened_nor_deleted(name: str, tmp_path: Path) -> None:
    """The group's leader names tasks, and may be any client."""
    directory = StateDirectory(tmp_path / "state", "app", random.Random(1))
    task = TaskId(0, 1, name)
    outside = (directory.path / str(task)).resolve()
    outside.mkdir(parents=True)
    with pytest.raises(InvalidPath):
        directory.open(task, ("counts",))
    with pytest.raises(InvalidPath):
        directory.forget(task)
    assert not list(outside.iterdir())
    directory.close()


def test_directory_not_named_after_a_task_is_ignored(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app", random.Random(1))
    (directory.path / "lost+found").mkdir()
    directory.open(TaskId(0, 1), ("counts",)).close()
    assert directory.tasks() == [TaskId(0, 1)]
    directory.close()


def test_tasks_with_state_are_listed_until_forgotten(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app", random.Random(1))
    assert directory.tasks() == []
    for task in (TaskId(1, 0), TaskId(0, 10), TaskId(0, 9)):
        directory.open(task, ("counts",)).close()
    assert directory.tasks() == [TaskId(0, 9), TaskId(0, 10), TaskId(1, 0)]
    directory.forget(TaskId(0, 10))
    directory.forget(TaskId(0, 10))
    assert directory.tasks() == [TaskId(0, 9), TaskId(1, 0)]
    directory.close()


def test_stores_that_were_not_up_to_date_for_most_of_a_day_are_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A day later their changelogs may lack deletions."""
    topology = Topology()
    topology.stream("in").count("counts")
    built = topology.build("app")
    task = TaskId(0, 1)
    directory = StateDirectory(tmp_path, "app", random.Random(1))

    def age(stores: Path, seconds: float) -> None:
        then_s = time.time() - seconds
        os.utime(stores / DATA_FILE, (then_s, then_s))

    def checkpoint(disk: TaskDisk) -> int:
        with contextlib.closing(disk):
            return disk.checkpoint("counts")

    for open_stores in (lambda: directory.open(task, ("counts",)), lambda: directory.open_global("counts")):
        with contextlib.closing(open_stores()) as disk:
            disk.write(Write(checkpoints={"counts": 7}))
        age(disk.directory, OUTDATED_AFTER_S - 60)
        assert checkpoint(open_stores()) == 7
        age(disk.directory, OUTDATED_AFTER_S + 60)
        assert checkpoint(open_stores()) == 0
        assert f"{disk.directory} was last up to date 20 hours ago" in caplog.text
    with contextlib.closing(directory.open(task, ("counts",))) as disk:
        disk.write(Write(checkpoints={"counts": 7}))
    assert directory.stored_tasks(built) == {task: 7}
    age(disk.directory, OUTDATED_AFTER_S + 60)
    assert directory.stored_tasks(built) == {task: 0}
    directory.close()
