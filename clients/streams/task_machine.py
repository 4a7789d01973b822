"""The state machine of an instance's tasks: decides when they process, commit, hand over and restore.

Every method takes what has happened and a `ConsumerView`, decides without waiting for anything, and returns effects.
The shells (`task_manager` for the consumer's callbacks and commits, `restorer` for changelogs) first wait for whatever
takes time, then ask, and carry the effects out before anything else can happen. Where the answer to a question arrives
late (where a changelog ends, say), the machine decides again whether the task is still the one that was asked about.

    a task processes          in RUNNING: its stores hold all that was committed, and all state has come that a resize
                              sends it before the key epoch that it reads
    a commit begins           when none is under way and the group does not rebalance. While it is under way nothing is
                              restored and no task begins to process
    a task hands state over   as part of a commit: its input was read to a cut, its stores are complete up to there, and
                              all state that was to come to it before has come

`state_handover` has the rules of moving state, `tasks` the states of one task. Source: TaskManager and StreamThread of
Kafka Streams; moving state with resized partitions is our own.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.assignment_info import AssignorError
from anabranch.clients.streams.changelog_bounds import ChangelogBounds
from anabranch.clients.streams.commit_schedule import CommitSchedule
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.departures import Departures
from anabranch.clients.streams.input_offsets import InputOffsets
from anabranch.clients.streams.lost_arrivals import LostArrivals
from anabranch.clients.streams.removed_tasks import RemovedTasks
from anabranch.clients.streams.restore_targets import RestoreTargets
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_effects import Close, Commit, Effect, Follow, Open, Pause, Rejoin, Resume
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_inputs import ConsumerView, TaskInputs, exists
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Output, Task
from anabranch.clients.streams.topology_graph import Built
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class TaskMachine:
    """The state of one instance's tasks, and every decision about them. Times are seconds of one clock."""

    def __init__(self, config: StreamsConfig, built: Built, parked: Mapping[TaskId, int], now: float) -> None:
        self.restore_targets = RestoreTargets(config)
        self._eager = config.rebalance_protocol == "eager"
        self._acceptable_lag = config.acceptable_recovery_lag
        self._built = built
        self._inputs = TaskInputs(built)
        self.removed = RemovedTasks(built)
        self._departures = Departures(self._inputs, self.removed)
        self._lost_arrivals = LostArrivals(self._inputs, self.removed)
        self.tasks: dict[TaskId, Task] = {}
        self.assigned = AssignedTasks()
        """The last assignment of the leader."""
        self._suspended: set[TaskId] = set()
        """Tasks that ran until an eager rebalance began."""
        self._expected: set[TaskId] = set()
        """Running tasks that will receive keys, and have to commit changes first."""
        self._offsets = InputOffsets(self._inputs)
        self._parked = dict(parked)
        """Closed tasks with state here: the sums of their checkpoints."""
        self._given_up = False
        self.committing = False
        """Whether a commit is in progress."""
        self.commit_schedule = CommitSchedule(config, now)

    # assignments

    def offset_sums(self) -> dict[TaskId, int]:
        """Return this instance's progress of each stateful task, for the group's leader: RUNNING, or the sum of the
        checkpoints of its stores.
        """
        sums = dict(self._parked)
        for task in self.tasks.values():
            if task.stores:
                running = task.state is State.RUNNING or task.id in self._suspended
                sums[task.id] = RUNNING if running else task.state_manager.checkpoint_sum
        return sums

    def on_tasks(self, assigned: AssignedTasks) -> None:
        """Handle the leader's assignment. Raises `StreamsError`, which ends the instance, if it is an error."""
        if assigned.error is not AssignorError.NONE:
            raise StreamsError(f"the group leader failed to compute an assignment: {assigned.error.name}")
        self.assigned = assigned
        self.removed.assign(assigned)

    def take_tasks(self, view: ConsumerView) -> list[Effect]:
        """Adopt exactly the assigned tasks: running ones continue, new ones catch up, others are closed."""
        self._suspended.clear()
        active, removed = set(self.assigned.active), self.removed.to_do(view)
        standby = {task for task in self.assigned.standby if task not in active}
        assigned = active | standby | removed
        effects: list[Effect] = [self._close(one) for one in [*self.tasks] if one not in assigned]
        for task_id in sorted(assigned):
            state = State.STANDBY if task_id in standby else State.CATCHING_UP
            task = self.tasks.get(task_id)
            if task is None:
                effects.append(Open(task_id, state))
            elif state is State.STANDBY:
                task.stand_by()
            elif task.state is State.STANDBY or task_id in removed:
                task.catch_up()
        running = {task.id for task in self.tasks.values() if task.state is State.RUNNING}
        paused = [one for task_id in sorted(active - running) for one in self._assigned_here(view, task_id)]
        return [*effects, Pause(paused), Follow()]

    def on_opened(self, task: Task) -> None:
        """Note that the stores of a task are open."""
        self._parked.pop(task.id, None)
        self.tasks[task.id] = task
        if task.id in self._lost_arrivals.copies and task.state is State.STANDBY:
            self._lost_arrivals.copies.discard(task.id)
            task.warming = False  # the leader does not wait for it

    def give_back(self, partitions: Collection[TopicPartition], *, lost: bool) -> list[Effect]:
        """Stop the tasks of these partitions; their stores are kept up to date until the next assignment."""
        for partition in partitions:
            task = self.tasks.get(self.task_id(partition))
            self._offsets.forget(partition)
            if task is None:
                continue
            if lost:
                task.on_aborted()
            elif self._eager and task.state is State.RUNNING:
                self._suspended.add(task.id)
            task.stand_by()
        return [Follow()]

    # processing

    def holds_back(self, view: ConsumerView, partition: TopicPartition, generation: int) -> bool:
        """Whether a key epoch waits: of joined topics, one that was resized first waits for the others."""
        task = self.tasks.get(self.task_id(partition))
        return task is not None and self._inputs.holds_back(view, task, partition, generation)

    def read_together(self, view: ConsumerView, partition: TopicPartition) -> Sequence[TopicPartition]:
        """Return the existing partitions of a task of several topics, which is given their oldest records first."""
        task = self.tasks.get(self.task_id(partition))
        if task is None or len(task.partitions) == 1:
            return ()
        present = [one for one in task.partitions if exists(view, one)]
        return present if partition in present else ()

    def process(
        self, view: ConsumerView, records: Mapping[TopicPartition, Sequence[ConsumerRecord]], now_ms: int
    ) -> list[Output]:
        """Process delivered records before the next await; return the tasks' output. Raises `RecordFailed`.

        A task of several topics processes the oldest records first. `now_ms` is the time of day.
        """
        outputs: list[Output] = []
        for task_id in dict.fromkeys(map(self.task_id, records)):
            task = self.tasks[task_id]
            parts = [records[one] for one in task.partitions if one in records]
            rows = parts[0] if len(parts) == 1 else list(heapq.merge(*parts, key=attrgetter("timestamp")))
            lineages = {one.topic: view.lineage(one.topic) for one in task.partitions}
            outputs += task.process(rows, lineages, now_ms)
        return outputs

    def punctuate(self, now_ms: int) -> list[Output]:
        """Call the functions of timers that are due by the time of day; return their output. Raises `RecordFailed`."""
        running = [task for _, task in sorted(self.tasks.items()) if task.state is State.RUNNING]
        return [output for task in running for output in task.punctuate(now_ms)]

    def task_id(self, partition: TopicPartition) -> TaskId:
        """Return the task of a partition, on any instance."""
        return TaskId(self._built.subtopology_of(partition.topic).index, partition.partition)

    # commits

    def may_commit(self, view: ConsumerView, now: float) -> bool:
        """Whether a commit may begin: none is under way, nor is it put off to the end of a rebalance."""
        # The consumer requests a flush where a commit's offsets reach a cut: this is the commit that does it.
        if self._given_up or self.committing:
            return False
        return self.commit_schedule.may_begin(now, rebalancing=view.rebalancing)

    def before_commit(self, view: ConsumerView) -> list[Effect]:
        """End tasks of removed partitions that have handed everything over; stop those that will receive keys."""
        finished = [
            task
            for task in self.tasks.values()
            if task.id in self.removed and task.state_manager.restored and self.removed.is_finished(view, task)
        ]
        effects: list[Effect] = []
        for task in finished:
            log.info("closing %s: its partition was removed", task.id)
            effects += [self._close(task.id), Follow()]
        return [*effects, *self.expect_arrivals(view)]

    def commit(self, view: ConsumerView, now: float, *, sent: bool) -> Commit | None:
        """Return the next commit, of all processed records and due hand-overs; None if there is nothing.

        `sent`: whether output was sent since the last commit. A returned commit is in progress until `on_committed` or
        `commit_failed`.
        """
        departures, member = self._departures.due(view, self.tasks.values()), None
        leaving = {departure.task.id for departure in departures}
        if any(task in self.removed for task in leaving):
            member = self.removed.member(view)
            leaving |= self._departures.observe(view, self.tasks.values())
        tasks = [task for task in self.tasks.values() if task.state is State.RUNNING or task.id in leaving]
        offsets = self._offsets.uncommitted(view, tasks, leaving)
        self.commit_schedule.begin(now)
        if not (offsets or departures or sent or any(task.state_manager.changed for task in tasks)):
            return None
        self.committing = True
        return Commit(tasks, offsets, departures, member)

    def on_committed(self, commit: Commit, now: float, *, handed_over: bool) -> list[Effect]:
        """Note that the commit succeeded."""
        self.committing = False
        self._offsets.on_committed(commit.offsets)
        if not handed_over:
            return []
        self.commit_schedule.hasten(now)  # a hand-over may exceed one transaction
        return [Follow()]

    def commit_failed(self) -> None:
        """Note that the commit failed, or its outcome is unknown: `on_aborted` follows, or the instance ends."""
        self.committing = False

    def on_aborted(self, view: ConsumerView) -> list[Effect]:
        """Undo everything since the last commit: tasks drop their memory, and read their changelogs again."""
        effects: list[Effect] = []
        for task in self.tasks.values():
            if task.state is not State.STANDBY:  # the marks of one that was about to hand over are void
                task.on_aborted()
                effects.append(Pause(self._assigned_here(view, task.id)))
        return effects

    def last_committed(self, partition: TopicPartition, stored: int | None) -> int | None:
        """Return where to read a partition again; `stored` is the group's offset. None if it was never read here.

        A coordinator that was replaced and does not know it has an offset from before the last commits.
        """
        known = [one for one in (self._offsets.last_committed(partition), stored) if one is not None]
        return max(known, default=None)

    def give_up(self) -> None:
        """Stop committing: uncommitted work is void."""
        self._given_up = True
        for task in self.tasks.values():
            task.on_aborted()

    # resizes

    def expect_arrivals(self, view: ConsumerView) -> list[Effect]:
        """Stop tasks that will receive keys, and those whose changelog was recreated.

        The consumer announces no key epoch without records.
        """
        effects: list[Effect] = []
        for task in self.tasks.values():
            if task.state is not State.RUNNING or not task.stores:
                continue
            if task.state_manager.unchecked or not self._inputs.has_arrived(view, task):
                self._expected.add(task.id)
                effects.append(Pause(self._assigned_here(view, task.id)))
        return effects

    def catch_up_expected(self) -> list[Effect]:
        """Let those tasks catch up whose changes are committed."""
        before = len(self._expected)
        for task in [self.tasks[one] for one in self._expected & self.tasks.keys()]:
            if task.state is not State.RUNNING:
                self._expected.discard(task.id)
            elif not task.state_manager.changed:
                self._expected.discard(task.id)
                task.catch_up()
        return [Follow()] if len(self._expected) < before else []

    # restoring

    @property
    def catching_up(self) -> bool:
        """Whether a task waits for its state."""
        return any(task.state is State.CATCHING_UP for task in self.tasks.values())

    def to_follow(self) -> dict[TopicPartition, int]:
        """Return the changelogs of all tasks that do not run, with the next offset of each."""
        return self.restore_targets.checkpoints(
            [task for task in self.tasks.values() if task.state is not State.RUNNING]
        )

    def doubt(self, lost: Collection[TopicPartition], topic_ids: Mapping[str, bytes]) -> bool:
        """Note that the reader's positions in `lost` are out of range, and these topic ids of changelogs. Returns
        whether a store newly has to be compared with its changelog.
        """
        following = [task for task in self.tasks.values() if task.state is not State.RUNNING]
        return self.restore_targets.doubt(following, lost, topic_ids)

    def is_without_target(self, view: ConsumerView) -> list[Task]:
        """Return the tasks whose changelogs' bounds may be looked up now: unchecked copies, and tasks that are to run.
        Their positions are known, so every transaction of an earlier owner is decided, and lies below the ends.
        """
        return [task for task in self.tasks.values() if self._is_aimless(view, task)]

    def aim(
        self,
        view: ConsumerView,
        tasks: Collection[Task],
        checkpoints: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, ChangelogBounds],
    ) -> list[Effect]:
        """Restore these tasks up to the bounds of their changelogs, which were looked up after the checkpoints.

        Raises `StreamsError` if a store may not be reset.
        """
        effects: list[Effect] = []
        for task in tasks:
            # It may have been revoked, or reset, in the meantime: then its positions have changed.
            if self.tasks.get(task.id) is task and self._is_aimless(view, task):
                effects += self.restore_targets.aim(task, checkpoints, bounds, committing=self.committing)
                log.debug("%s", task.progress)
        return [*effects, Follow()]

    def restoring(self, changelog: TopicPartition) -> tuple[Task, str] | None:
        """Return the task and store that restore from a changelog now; None if there is none."""
        if self.committing:
            return None  # the commit may be about to write to the same store
        for task in self.tasks.values():
            for name in task.stores:
                if self.restore_targets.changelog(task, name) == changelog:
                    return None if task.state is State.RUNNING else (task, name)
        return None

    def release(self, view: ConsumerView) -> list[Effect]:
        """Run the tasks that are restored, and that have received all state of resizes."""
        if self.committing:
            return []
        ready = [
            task
            for task in self.tasks.values()
            if task.state is State.CATCHING_UP
            and task.state_manager.restored
            and task.id not in self.removed
            and self._inputs.has_arrived(view, task)
        ]
        effects: list[Effect] = []
        for task in ready:
            task.run()
            self._expected.discard(task.id)  # after a failed commit: it has restored what it was to stop for
            effects.append(Resume(self._assigned_here(view, task.id)))
            log.info("%s is running, with %d keys", task.id, task.state_manager.entries)
        return [*effects, Follow()] if ready else []

    def find_lost_arrivals(self, view: ConsumerView) -> list[Effect]:
        """Let no task wait for state whose mark was deleted from its changelog."""
        return [] if self.committing else self._lost_arrivals.effects(view, self.tasks)

    def note_lags(self, lags: Mapping[TopicPartition, int]) -> list[Effect]:
        """Note how much of each changelog is still to be read, where known. When every warm-up copy has caught up, the
        group can assign tasks to them, without waiting for a probing rebalance (KIP-441).
        """
        warming = [task for task in self.tasks.values() if task.warming]
        for task in warming:
            changelogs = [self.restore_targets.changelog(task, name) for name in task.stores]
            if all(one in lags for one in changelogs) and sum(lags[one] for one in changelogs) <= self._acceptable_lag:
                task.warming = False
                log.info("standby %s is caught up", task.id)
        return [Rejoin()] if warming and not any(task.warming for task in warming) else []

    # internals

    def _is_aimless(self, view: ConsumerView, task: Task) -> bool:
        if task.state is State.STANDBY:
            return task.state_manager.unchecked
        return (
            task.state is State.CATCHING_UP and task.state_manager.targets is None and self._positions_known(view, task)
        )

    def _positions_known(self, view: ConsumerView, task: Task) -> bool:
        """Whether the input has positions, and thus every transaction of the previous owner is decided."""
        if task.id in self.removed:
            return self.removed.is_decided(task.id)
        return self._offsets.begin(view, self._assigned_here(view, task.id))

    def _assigned_here(self, view: ConsumerView, task: TaskId) -> list[TopicPartition]:
        mine = view.assignment()
        every = (TopicPartition(topic, task.partition) for topic in self._built.subtopologies[task.subtopology].sources)
        return [one for one in every if one in mine]

    def _close(self, task_id: TaskId) -> Close:
        task = self.tasks.pop(task_id)
        self._parked[task_id] = task.state_manager.checkpoint_sum
        return Close(task)
