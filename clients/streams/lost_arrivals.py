"""Detects arrivals of state whose mark retention has deleted from the task's changelog.

A task waits for the mark of each partition that hands state over to it. If its changelog no longer begins at offset 0,
that mark may be deleted, and the wait would never end. The giver noted the hand-over in its own changelog, in the
transaction that wrote the mark. So the giver's task is copied to this instance, unless it is here already. When the
copy shows the hand-over, the task is restored once more, up to the current end of its changelog. If the mark is not
there, it is deleted, and the task continues without that state.

The giver's note may be deleted, too. A task writes its marks again when it starts to run on a changelog that was cut
off, so the wait ends when the giver is next restarted or moved. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from anabranch.clients.streams import state_handover
from anabranch.clients.streams.changelog import Marks
from anabranch.clients.streams.removed_tasks import RemovedTasks
from anabranch.clients.streams.task_effects import Effect, Follow, Open
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_inputs import ConsumerView, TaskInputs
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task

log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """A pending arrival: the state of the keys that leave a partition at a generation."""

    task: TaskId
    store: str
    source: int
    generation: int


class LostArrivals:
    """Finds the arrivals for which one instance's tasks wait in vain."""

    def __init__(self, inputs: TaskInputs, removed: RemovedTasks) -> None:
        self._inputs = inputs
        self._removed = removed
        self._handed_over: set[Arrival] = set()
        """Arrivals whose giver has handed over; the task has been restored again since."""
        self.copies: set[TaskId] = set()
        """Tasks that were opened to read their marks."""

    def effects(self, view: ConsumerView, tasks: Mapping[TaskId, Task]) -> list[Effect]:
        """Return the effects: tasks continue without lost state, are restored again, or givers are copied."""
        givers: set[TaskId] = set()
        for task in tasks.values():
            if not (task.state_manager.restored and task.state is State.CATCHING_UP and task.state_manager.cut_off):
                continue
            for arrival in list(self._awaited_arrivals(view, task)):
                giver = TaskId(task.id.subtopology, arrival.source)
                if giver not in tasks:
                    givers.add(giver)
                elif Marks.read(tasks[giver].stores[arrival.store].marks).departed >= arrival.generation:
                    self._conclude(task, arrival)
        if not givers:
            return []
        self.copies |= givers
        return [*(Open(giver, State.STANDBY) for giver in sorted(givers)), Follow()]

    def _awaited_arrivals(self, view: ConsumerView, task: Task) -> Iterator[Arrival]:
        """Yield the arrivals that a task waits for and whose marks may be deleted."""
        known = self._removed.read_to(view, task.id) if task.id in self._removed else self._inputs.read_to(view, task)
        if known is None:
            return
        for name, store in task.stores.items():
            if store.cut_off:
                for source, generation in state_handover.awaited_arrivals(*known, Marks.read(store.marks)):
                    yield Arrival(task.id, name, source, generation)

    def _conclude(self, task: Task, arrival: Arrival) -> None:
        if arrival not in self._handed_over:
            self._handed_over.add(arrival)
            task.catch_up()
        elif task.state_manager.restored:
            log.warning(
                "%s: the state that came from partition %d at generation %d was deleted from the changelog of store %s",
                task.id,
                arrival.source,
                arrival.generation,
                arrival.store,
            )
            task.state_manager.assume_arrived(arrival.store, arrival.source, arrival.generation)
