"""The directory of one instance: its process id, and a directory for each task with state.

<state_dir>/<application id>/.lock            locked while the instance runs
<state_dir>/<application id>/process          the process id, 16 bytes in hex
<state_dir>/<application id>/<task id>/       the stores of a task
<state_dir>/<application id>/global/<store>/  the store of a global table

Outdated stores are deleted when they are opened. A compacted topic has a deletion for `delete.retention.ms`, a day by
default. So the changelog of a store that was up to date longer ago may lack deletions, and keys would come back.
"""

from __future__ import annotations

import logging
import random
import re
import shutil
from pathlib import Path
from typing import Final

from anabranch.clients.clock import wall_clock_ms
from anabranch.clients.directory_lock import DirectoryLock
from anabranch.clients.durable_files import replace_file
from anabranch.clients.streams.task_disk import DATA_FILE, TaskDisk, checkpoints_on_disk
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.topology_graph import Built
from anabranch.protocol.file_paths import path_inside

log = logging.getLogger(__name__)

OUTDATED_AFTER_S: Final = 20 * 3600
"""The rest of a day is left to read the changelog."""
PROCESS_ID: Final = re.compile(rb"[0-9a-f]{32}")


class StateDirectory:
    """The directory of one instance, locked for it.

    Raises DirectoryInUse if another instance runs in it, InvalidPath if the application id is no valid directory name.
    Task names come from the group's leader, so each is checked when it becomes a path.
    """

    def __init__(self, state_dir: Path, application_id: str, rng: random.Random) -> None:
        self.path = Path(path_inside(str(state_dir), application_id))
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(self.path)
        process = self.path / "process"
        if not process.exists() or not PROCESS_ID.fullmatch(process.read_bytes()):  # a power failure may damage it
            replace_file(str(process), rng.getrandbits(128).to_bytes(16, "big").hex().encode())
        self.process_id = bytes.fromhex(process.read_text())

    def open(self, task: TaskId, stores: tuple[str, ...]) -> TaskDisk:
        """Open the stores of a task; create them if needed."""
        return TaskDisk(_without_outdated(self._of(task)), stores)

    def open_global(self, store: str) -> TaskDisk:
        """Open the store of a global table; create it if needed."""
        return TaskDisk(_without_outdated(Path(path_inside(str(self.path / "global"), store))), (store,))

    def tasks(self) -> list[TaskId]:
        """Return every task with a directory. Other directories are ignored."""
        return sorted(task for one in self.path.iterdir() if one.is_dir() and (task := _parse(one.name)) is not None)

    def stored_tasks(self, built: Built) -> dict[TaskId, int]:
        """Return every task of this topology with state here, with its stores' checkpoint sum. None may be open."""
        return {
            task: sum(checkpoints_on_disk(_without_outdated(self._of(task)), part.stores).values())
            for task in self.tasks()
            for part in built.subtopologies[task.subtopology : task.subtopology + 1]
        }

    def forget(self, task: TaskId) -> None:
        """Delete the stores of a task that is not open."""
        shutil.rmtree(self._of(task), ignore_errors=True)

    def close(self) -> None:
        """Unlock the directory."""
        self._lock.release()

    def _of(self, task: TaskId) -> Path:
        return Path(path_inside(str(self.path), str(task)))


def _without_outdated(directory: Path) -> Path:
    """Delete the stores in a directory if they are outdated; return the directory."""
    data = directory / DATA_FILE
    if data.exists() and (age_s := wall_clock_ms() / 1000 - data.stat().st_mtime) > OUTDATED_AFTER_S:
        log.warning(
            "%s was last up to date %d hours ago: its topic may have lost deletions since, and is read again",
            directory,
            age_s // 3600,
        )
        shutil.rmtree(directory)
    return directory


def _parse(name: str) -> TaskId | None:
    try:
        return TaskId.parse(name)
    except ValueError:
        return None
