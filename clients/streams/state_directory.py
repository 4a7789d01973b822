"""The directory of one instance: who it is, over restarts, and a directory for each task that ever had state here.

<state_dir>/<application id>/process          the process id, 16 bytes in hex; locked while the instance runs
<state_dir>/<application id>/<task id>/       the stores of a task
"""

from __future__ import annotations

import fcntl
import random
import shutil
from pathlib import Path
from typing import IO

from clients.streams.disk import TaskDisk, checkpoints_on_disk
from clients.streams.task import TaskId


class StateDirectory:
    """See the module. `BlockingIOError` when another instance runs in it."""

    def __init__(self, state_dir: Path, application_id: str, rng: random.Random) -> None:
        self.path = state_dir / application_id
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock: IO[str] = (self.path / "process").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise BlockingIOError(f"another instance runs in {self.path}") from None
        self._lock.seek(0)
        known = self._lock.read()
        if not known:
            known = rng.getrandbits(128).to_bytes(16, "big").hex()
            self._lock.write(known)
            self._lock.flush()
        self.process_id = bytes.fromhex(known)

    def open(self, task: TaskId, stores: tuple[str, ...]) -> TaskDisk:
        """The stores of a task, made if need be."""
        return TaskDisk(self.path / str(task), stores)

    def tasks(self) -> list[TaskId]:
        """Every task that has left something here."""
        return sorted(TaskId.parse(one.name) for one in self.path.iterdir() if one.is_dir())

    def checkpoints(self, task: TaskId, stores: tuple[str, ...]) -> dict[str, int]:
        """How far the stores of a task that is not open are."""
        return checkpoints_on_disk(self.path / str(task), stores)

    def forget(self, task: TaskId) -> None:
        """Delete the stores of a task that is not open."""
        shutil.rmtree(self.path / str(task), ignore_errors=True)

    def close(self) -> None:
        """Let others in."""
        self._lock.close()
