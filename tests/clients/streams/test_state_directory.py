"""The directory of an application's state belongs to one instance at a time, which knows itself again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from anabranch.clients.directory_lock import DirectoryInUse
from anabranch.clients.streams.state_directory import StateDirectory
from anabranch.clients.streams.task_id import TaskId


def test_an_instance_is_the_same_process_after_a_restart_and_another_elsewhere(tmp_path: Path) -> None:
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


def test_tasks_that_left_something_are_found_until_they_are_forgotten(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app", random.Random(1))
    assert directory.tasks() == []
    for task in (TaskId(1, 0), TaskId(0, 10), TaskId(0, 9)):
        directory.open(task, ("counts",)).close()
    assert directory.tasks() == [TaskId(0, 9), TaskId(0, 10), TaskId(1, 0)]
    directory.forget(TaskId(0, 10))
    directory.forget(TaskId(0, 10))
    assert directory.tasks() == [TaskId(0, 9), TaskId(1, 0)]
    directory.close()
