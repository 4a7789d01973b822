"""Executes the effects of `TaskMachine`: opens and closes stores, pauses and resumes input, controls the changelog
reader.

Nothing here awaits, so the decisions still hold when they are executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.context import ReadOnlyStore
from anabranch.clients.streams.failures import Failures
from anabranch.clients.streams.handover_writer import Delivery
from anabranch.clients.streams.state_directory import StateDirectory
from anabranch.clients.streams.task_effects import Close, Effect, Follow, Open, Pause, Rejoin, Resume, Seek
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_machine import TaskMachine
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology_graph import Built


class TaskRunner:
    """Executes the effects of one instance's machine, on its stores, its consumer and its changelog reader."""

    def __init__(
        self,
        application_id: str,
        built: Built,
        machine: TaskMachine,
        directory: StateDirectory,
        consumer: Consumer,
        reader: ChangelogReader,
        failures: Failures,
        wakeup: asyncio.Event,
        global_stores: Mapping[str, ReadOnlyStore],
    ) -> None:
        """Create a runner; `wakeup` is set when there may be something to restore, or to look up for that."""
        self._application_id = application_id
        self._built = built
        self._machine = machine
        self._directory = directory
        self._consumer = consumer
        self._reader = reader
        self._failures = failures
        self._wakeup = wakeup
        self._global_stores = global_stores

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Execute effects in order."""
        for effect in effects:
            match effect:
                case Open(task_id, state):
                    self._open(task_id, state)
                case Close(task):
                    task.close()
                case Pause(partitions):
                    self._consumer.pause(*partitions)
                case Resume(partitions):
                    self._consumer.resume(*partitions)
                case Follow():
                    self._reader.follow(self._machine.to_follow())
                    self._wakeup.set()
                case Seek(changelog, offset):
                    self._reader.seek(changelog, offset)
                case Rejoin():
                    self._consumer.enforce_rebalance()

    def copy(self, deliveries: Iterable[Delivery]) -> int:
        """Copy handed-over rows to the stores on this disk, which then need not read them; return the number of keys.

        A task that is not here becomes a standby until the next assignment, so that the leader learns where the state
        is.
        """
        copied = 0
        for delivery in deliveries:
            task_id = TaskId(delivery.subtopology, delivery.target)
            task = self._machine.tasks.get(task_id) or self._open(task_id, State.STANDBY)
            if task.state is State.RUNNING:
                continue
            if task.state_manager.take_over(delivery.store, delivery.rows, delivery.mark, delivery.offsets):
                copied += len(delivery.rows)
                end = task.stores[delivery.store].checkpoint.offset
                self._reader.seek(self._machine.restore_targets.changelog(task, delivery.store), end)
        self._wakeup.set()
        return copied

    def _open(self, task_id: TaskId, state: State) -> Task:
        subtopology = self._built.subtopologies[task_id.subtopology]
        disk = self._directory.open(task_id, subtopology.stores)
        task = Task(
            task_id,
            self._application_id,
            subtopology,
            disk,
            state=state,
            failures=self._failures,
            global_stores=self._global_stores,
        )
        self._machine.on_opened(task)
        return task
