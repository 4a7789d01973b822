"""Determines how far each task is restored, and which of its stores are reset.

Before a task runs, and when a copy is opened, the checkpoints of its stores are compared with the bounds of their
changelogs. A store that belongs to its changelog is restored up to its end. Any other one is reset to the changelog's
start, or ends the instance, by `changelog_auto_offset_reset`. An empty store loses no state, so it never ends the
instance.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from anabranch.clients.streams.changelog import changelog_topic
from anabranch.clients.streams.changelog_bounds import ChangelogBounds, reset_reason
from anabranch.clients.streams.config import RESET_NONE, StreamsConfig
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.task_effects import Seek
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class RestoreTargets:
    """Compares the stores of one instance with their changelogs."""

    def __init__(self, config: StreamsConfig) -> None:
        self._application_id = config.application_id
        self._transactional = config.exactly_once
        self._may_reset = config.changelog_auto_offset_reset != RESET_NONE

    def changelog(self, task: Task, store: str) -> TopicPartition:
        """Return the changelog partition of one store of a task."""
        return TopicPartition(changelog_topic(self._application_id, store), task.id.partition)

    def checkpoints(self, tasks: Collection[Task]) -> dict[TopicPartition, int]:
        """Return the checkpoint of each changelog of these tasks."""
        return {
            self.changelog(task, name): store.checkpoint.offset for task in tasks for name, store in task.stores.items()
        }

    def doubt(self, tasks: Collection[Task], lost: Collection[TopicPartition], topic_ids: Mapping[str, bytes]) -> bool:
        """Doubt the stores whose changelog is in `lost`, or has another topic id now. Returns whether one is new."""
        doubted = False
        for task in tasks:
            for name, store in task.stores.items():
                changelog = self.changelog(task, name)
                known = topic_ids.get(changelog.topic, b"")
                other = bool(store.topic_id and known and known != store.topic_id)
                if not store.doubted and (changelog in lost or other):
                    task.state_manager.doubt(name)
                    doubted = True
        return doubted

    def aim(
        self,
        task: Task,
        checkpoints: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, ChangelogBounds],
        *,
        committing: bool,
    ) -> list[Seek]:
        """Restore a task up to these bounds, which were looked up when its stores had these checkpoints.

        The task stays unchecked, to be queried again, if a bound is missing or a store cannot be reset now. Raises
        `StreamsError` if one may not be reset.
        """
        changelogs = {name: self.changelog(task, name) for name in task.stores}
        if any(one not in bounds for one in changelogs.values()):
            return []
        found = {
            name: reset_reason(
                checkpoints[one], task.stores[name].topic_id, bounds[one], transactional=self._transactional
            )
            for name, one in changelogs.items()
        }
        reasons = {name: reason for name, reason in found.items() if reason is not None}
        moved = any(task.stores[name].checkpoint.offset != checkpoints[changelogs[name]] for name in reasons)
        if reasons and (committing or moved):
            return []
        for name, reason in reasons.items():
            self._start_over(task, name, reason, bounds[changelogs[name]])
        again = {name for name, store in task.stores.items() if name in reasons or store.doubted}
        for name, one in changelogs.items():
            store = task.stores[name]
            store.cut_off = store.log_marks = bounds[one].start > 0
            if store.checkpoint.offset < bounds[one].start:  # only a marker is deleted
                store.checkpoint.read_to(bounds[one].start)
                again.add(name)
        task.state_manager.check({name: bounds[one].topic_id for name, one in changelogs.items()})
        if task.state is State.CATCHING_UP:
            task.state_manager.aim({name: bounds[one].end for name, one in changelogs.items()})
        return [Seek(changelogs[name], task.stores[name].checkpoint.offset) for name in sorted(again)]

    def _start_over(self, task: Task, store: str, reason: str, bounds: ChangelogBounds) -> None:
        changelog, had_state = self.changelog(task, store), task.state_manager.has_state(store)
        if had_state and not self._may_reset:
            raise StreamsError(
                f"{task.id}: the state of store {store} does not belong to {changelog}: {reason}. To start with an "
                f"empty store, set changelog_auto_offset_reset=earliest, or delete {task.state_manager.disk.directory}"
            )
        log.warning(
            "%s: %s; store %s begins %s at offset %d of %s",
            task.id,
            reason,
            store,
            "anew" if had_state else "empty",
            bounds.start,
            changelog,
        )
        task.state_manager.start_over(store, bounds.start)
