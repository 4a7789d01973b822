"""What tests of state stores share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.clients.streams.task_disk import TaskDisk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[TaskDisk]:
    """The disk of a task with one store, "s"."""
    disk = TaskDisk(tmp_path, ("s",))
    yield disk
    disk.close()
