"""Finds the hand-overs that are due, from marks, lineages and input positions.

A hand-over is due when the input of a task has been read to a cut, the task's stores hold everything committed up to
there, and all state that moves to the task before the cut has arrived. State of misplaced keys does not move; the
instance ends instead (`misplaced_keys`).
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.clients.streams import state_handover
from anabranch.clients.streams.joined import Reading
from anabranch.clients.streams.misplaced_keys import check_state_may_move
from anabranch.clients.streams.removed_tasks import RemovedTasks
from anabranch.clients.streams.task_effects import Departure
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_inputs import ConsumerView, TaskInputs
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.protocol.lineage import KeyEpoch


class Departures:
    """Finds the due hand-overs of one instance's tasks."""

    def __init__(self, inputs: TaskInputs, removed: RemovedTasks) -> None:
        self._inputs = inputs
        self._removed = removed

    def due(self, view: ConsumerView, tasks: Collection[Task]) -> list[Departure]:
        """Return the due hand-overs of these tasks. Raises `StreamsError` if misplaced keys would move."""
        found: list[Departure] = []
        for task in tasks:
            if not task.stores or not _complete(task):
                continue
            marks = task.state_manager.marks()
            read_to = self._read_to(view, task, tasks)
            if read_to is None:
                continue
            lineage, key_epoch = read_to
            check_state_may_move(task.id, marks, lineage)
            for generation in state_handover.due(lineage, key_epoch, min(one.departed for one in marks)):
                opened = KeyEpoch(task.id.partition, generation)
                before = lineage.previous(opened)
                assert before is not None, "keys leave where a key epoch ends"
                if any(state_handover.missing(lineage, before, one) for one in marks):
                    break
                found.append(Departure(task, lineage, opened))
        return found

    def observe(self, view: ConsumerView, tasks: Collection[Task]) -> set[TaskId]:
        """Return a task, if any, whose offset can be committed once more, so that the group confirms the membership."""
        for task in tasks:
            if _complete(task) and any(view.position(one) >= 0 for one in self._inputs.present(view, task)):
                return {task.id}
        return set()

    def _read_to(self, view: ConsumerView, task: Task, tasks: Collection[Task]) -> Reading | None:
        """Return the key epoch of a task's input; for a removed partition its last one, if the task may be finished."""
        if task.id not in self._removed:
            return self._inputs.read_to(view, task) if self._inputs.present(view, task) else None
        agreeable = self._removed.member(view) is not None and self.observe(view, tasks)
        return self._removed.read_to(view, task.id) if agreeable else None


def _complete(task: Task) -> bool:
    """Whether a task's stores hold everything committed up to its position."""
    return task.state is State.RUNNING or (task.state is State.CATCHING_UP and task.state_manager.restored)
