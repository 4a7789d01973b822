"""What the tasks of one Streams instance may do now: process, commit, hand over, restore. All of it is decided here.

Every method takes what has happened and a `ConsumerView`, decides without waiting for anything, and returns effects.
The shells (`task_manager` for the consumer's callbacks and commits, `restorer` for changelogs) first wait for whatever
takes time, then ask, and carry the effects out before anything else can happen. Where the answer to a question arrives
late (where a changelog ends, say), the machine decides again whether the task is still the one that was asked about.

    a task processes          in RUNNING: its stores hold all that was committed, and all state has come that a resize
                              sends it before the segment that it reads
    a commit begins           when none is under way and the group does not rebalance. While it is under way nothing is
                              restored and no task begins to process
    a task hands state over   as part of a commit: its input was read to a cut, its stores are complete up to there, and
                              all state that was to come to it before has come

`state_handover` has the rules of moving state, `tasks` the states of one task. Source: TaskManager and StreamThread of
Kafka Streams; moving state with resized partitions is our own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.assignment_info import AssignorError
from anabranch.clients.streams.changelog_bounds import ChangelogBounds
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.departures import Departures
from anabranch.clients.streams.lost_arrivals import LostArrivals
from anabranch.clients.streams.removed_tasks import RemovedTasks
from anabranch.clients.streams.restore_targets import RestoreTargets
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_effects import Close, Commit, Effect, Follow, Open, Pause, Rejoin, Resume
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_inputs import ConsumerView, TaskInputs
from anabranch.clients.streams.tasks import Output, State, Task
from anabranch.clients.streams.topology_graph import Built
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class TaskMachine:
    """The state of one instance's tasks, and every decision about them. Times are seconds of one clock."""

    def __init__(self, config: StreamsConfig, built: Built, parked: Mapping[TaskId, int], now: float) -> None:
        self._targets = RestoreTargets(config)
        self._eager = config.rebalance_protocol == "eager"
        self._interval_s = config.commit_interval_ms / 1000
        # The group may wait for a dead member for longer than a transaction may take.
        self._patience_s = config.transaction_timeout_ms / 2000 if config.exactly_once else math.inf
        self._acceptable_lag = config.acceptable_recovery_lag
        self._built = built
        self._inputs = TaskInputs(built)
        self.removed = RemovedTasks(built)
        self._departures = Departures(self._inputs, self.removed)
        self._lost_arrivals = LostArrivals(self._inputs, self.removed)
        self.tasks: dict[TaskId, Task] = {}
        self._assigned = AssignedTasks()
        self._suspended: set[TaskId] = set()
        """Tasks that ran until an eager rebalance began."""
        self._expected: set[TaskId] = set()
        """Running tasks to which keys are about to come, and which have changes to commit first."""
        self._offsets: dict[TopicPartition, int] = {}
        """What was committed last, or where reading began."""
        self._parked = dict(parked)
        """Tasks that left state here and are not open: the sums of their checkpoints."""
        self._given_up = False
        self.committing = False
        """Whether a commit is under way."""
        self.put_off = False
        """Whether a commit waits for the end of a rebalance."""
        self._committed_at = now
        self.commit_due = now

    # assignments

    def offset_sums(self) -> dict[TaskId, int]:
        """What this instance has of each task with state, for the leader of the group: RUNNING, or the sum of the
        offsets up to which its changelogs are in its stores."""
        sums = dict(self._parked)
        for task in self.tasks.values():
            if task.stores:
                running = task.state is State.RUNNING or task.id in self._suspended
                sums[task.id] = RUNNING if running else task.checkpoint_sum
        return sums

    def on_tasks(self, assigned: AssignedTasks) -> None:
        """The leader has answered. `StreamsError`, which ends the instance, if it answered that there is no
        assignment."""
        if assigned.error is not AssignorError.NONE:
            raise StreamsError(f"the leader of the group has no assignment: {assigned.error.name}")
        self._assigned = assigned
        self.removed.assign(assigned)

    def take_tasks(self, view: ConsumerView) -> list[Effect]:
        """Have exactly the tasks that were assigned: those that run go on, new ones catch up, others are closed."""
        self._suspended.clear()
        active, removed = set(self._assigned.active), self.removed.to_do(view)
        standby = {task for task in self._assigned.standby if task not in active}
        wanted = active | standby | removed
        effects: list[Effect] = [self._close(one) for one in [*self.tasks] if one not in wanted]
        for task_id in sorted(wanted):
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

    def opened(self, task: Task) -> None:
        """The stores of a task are open."""
        self._parked.pop(task.id, None)
        self.tasks[task.id] = task
        if task.id in self._lost_arrivals.copies and task.state is State.STANDBY:
            self._lost_arrivals.copies.discard(task.id)
            task.warming = False  # the leader does not wait for it

    def give_back(self, partitions: Collection[TopicPartition], *, lost: bool) -> list[Effect]:
        """The tasks of these partitions run here no more; their stores are kept warm until the next assignment."""
        for partition in partitions:
            task = self.tasks.get(self.task_id(partition))
            self._offsets.pop(partition, None)
            if task is None:
                continue
            if lost:
                task.aborted()
            elif self._eager and task.state is State.RUNNING:
                self._suspended.add(task.id)
            task.stand_by()
        return [Follow()]

    # processing

    def holds_back(self, view: ConsumerView, partition: TopicPartition, generation: int) -> bool:
        """Whether a segment waits: where topics are joined, one that was resized first waits for the others."""
        task = self.tasks.get(self.task_id(partition))
        return task is not None and self._inputs.holds_back(view, task, partition, generation)

    def process(self, view: ConsumerView, records: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> list[Output]:
        """Process what the consumer has just handed out, before anything is awaited; what the tasks send.
        `RecordFailed`"""
        outputs: list[Output] = []
        for partition, rows in records.items():
            outputs += self.tasks[self.task_id(partition)].process(rows, view.lineage(partition.topic))
        return outputs

    def task_id(self, partition: TopicPartition) -> TaskId:
        """The task that reads a partition, here or elsewhere."""
        return TaskId(self._built.subtopology_of(partition.topic).index, partition.partition)

    # commits

    def may_commit(self, view: ConsumerView, now: float) -> bool:
        """Whether a commit may begin. While the group rebalances it may be refused, and is put off; a transaction only
        for half of the time that it may take."""
        # A commit has the consumer ask for a flush where its offsets reach a cut: this is the commit that does it.
        if self._given_up or self.committing:
            return False
        self.put_off = view.rebalancing and now < self._committed_at + self._patience_s
        if self.put_off:
            self.commit_due = min(now + self._interval_s, self._committed_at + self._patience_s)
        return not self.put_off

    def before_commit(self, view: ConsumerView) -> list[Effect]:
        """End the tasks of removed partitions that have handed everything over, and stop those to which keys come."""
        finished = [
            task
            for task in self.tasks.values()
            if task.id in self.removed and task.restored and self.removed.finished(view, task)
        ]
        effects: list[Effect] = []
        for task in finished:
            log.info("%s is finished: its partition is gone", task.id)
            effects += [self._close(task.id), Follow()]
        return [*effects, *self.expect_arrivals(view)]

    def commit(self, view: ConsumerView, now: float, *, sent: bool) -> Commit | None:
        """What to commit now, everything that was processed and every hand-over that is due; None if there is nothing.

        `sent`: whether output was sent since the last commit. If there is a commit, it is under way from here until
        `committed` or `commit_failed` is told.
        """
        departures, member = self._departures.due(view, self.tasks.values()), None
        leaving = {departure.task.id for departure in departures}
        if any(task in self.removed for task in leaving):
            member = self.removed.member(view)
            leaving |= self._departures.observe(view, self.tasks.values())
        tasks = [task for task in self.tasks.values() if task.state is State.RUNNING or task.id in leaving]
        offsets = self._progressed(view, tasks, leaving)
        self._committed_at = now
        self.commit_due = now + self._interval_s
        if not (offsets or departures or sent or any(task.changed for task in tasks)):
            return None
        self.committing = True
        return Commit(tasks, offsets, departures, member)

    def committed(self, commit: Commit, now: float, *, handed_over: bool) -> list[Effect]:
        """The commit stands."""
        self.committing = False
        self._offsets.update(commit.offsets)
        if not handed_over:
            return []
        self.commit_due = now  # there may be more to hand over than one transaction takes
        return [Follow()]

    def commit_failed(self) -> None:
        """The commit did not come about, or it is not known whether it did: `aborted` follows, or the instance ends."""
        self.committing = False

    def aborted(self, view: ConsumerView) -> list[Effect]:
        """Nothing since the last commit has happened: the tasks forget it, and read their changelogs again."""
        effects: list[Effect] = []
        for task in self.tasks.values():
            if task.state is not State.STANDBY:  # one that was about to hand over has marks that do not count
                task.aborted()
                effects.append(Pause(self._assigned_here(view, task.id)))
        return effects

    def last_committed(self, partition: TopicPartition, stored: int | None) -> int | None:
        """Where to read a partition again; `stored` is the group's offset. None if it was never read here."""
        return self._offsets.get(partition) if stored is None else stored

    def give_up(self) -> None:
        """Commit nothing more: what is in memory is void."""
        self._given_up = True
        for task in self.tasks.values():
            task.aborted()

    # resizes

    def expect_arrivals(self, view: ConsumerView) -> list[Effect]:
        """Stop tasks to which keys are about to come, and those whose changelog was made again.

        The consumer announces no segment that has no records.
        """
        effects: list[Effect] = []
        for task in self.tasks.values():
            if task.state is not State.RUNNING or not task.stores:
                continue
            if task.unchecked or not self._inputs.arrived(view, task):
                self._expected.add(task.id)
                effects.append(Pause(self._assigned_here(view, task.id)))
        return effects

    def catch_up_expected(self) -> list[Effect]:
        """Have those catch up whose changes are committed."""
        before = len(self._expected)
        for task in [self.tasks[one] for one in self._expected & self.tasks.keys()]:
            if task.state is not State.RUNNING:
                self._expected.discard(task.id)
            elif not task.changed:
                self._expected.discard(task.id)
                task.catch_up()
        return [Follow()] if len(self._expected) < before else []

    def _progressed(
        self, view: ConsumerView, tasks: Collection[Task], leaving: Collection[TaskId]
    ) -> dict[TopicPartition, int]:
        """The positions that are not committed yet; of tasks that hand over all, for the group has to agree to that.

        Of several topics all, too: the next owner of the task looks at what is there then, and one may be removed.
        """
        positions = {one: view.position(one) for task in tasks for one in self._inputs.present(view, task)}
        several = {task.id for task in tasks if len(task.partitions) > 1 and task.changed}
        agreed = {one for task in tasks if task.id in several.union(leaving) for one in task.partitions}
        return {one: at for one, at in positions.items() if at >= 0 and (at != self._offsets.get(one) or one in agreed)}

    # restoring

    @property
    def catching_up(self) -> bool:
        """Whether a task waits for its state."""
        return any(task.state is State.CATCHING_UP for task in self.tasks.values())

    def changelog(self, task: Task, store: str) -> TopicPartition:
        """The changelog partition of one store of a task."""
        return self._targets.changelog(task, store)

    def to_follow(self) -> dict[TopicPartition, int]:
        """The changelogs of all tasks that do not run, with the offset from which each has to be read."""
        return self._targets.checkpoints([task for task in self.tasks.values() if task.state is not State.RUNNING])

    def doubt(self, lost: Collection[TopicPartition], topic_ids: Mapping[str, bytes]) -> bool:
        """The reader finds nothing at its positions in `lost`, and knows these topic ids of changelogs. Returns whether
        one of these stores has to be compared with its changelog, and had not before."""
        following = [task for task in self.tasks.values() if task.state is not State.RUNNING]
        return self._targets.doubt(following, lost, topic_ids)

    def is_without_target(self, view: ConsumerView) -> list[Task]:
        """The tasks whose changelogs' bounds may be looked up now: copies that are unchecked, and tasks that are to
        run. Their positions are known, so everything that an earlier owner had begun is decided, and lies below the
        ends."""
        return [task for task in self.tasks.values() if self._is_aimless(view, task)]

    def checkpoints(self, tasks: Collection[Task]) -> dict[TopicPartition, int]:
        """How far the changelogs of these tasks are in their stores; to be asked before the bounds are looked up."""
        return self._targets.checkpoints(tasks)

    def aim(
        self,
        view: ConsumerView,
        tasks: Collection[Task],
        checkpoints: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, ChangelogBounds],
    ) -> list[Effect]:
        """The bounds of the changelogs of these tasks were looked up: they are restored up to there. `StreamsError`"""
        effects: list[Effect] = []
        for task in tasks:
            # It may have been revoked, or begun anew, in the meantime: then its positions are not what they were.
            if self.tasks.get(task.id) is task and self._is_aimless(view, task):
                effects += self._targets.aim(task, checkpoints, bounds, committing=self.committing)
                log.debug("%s", task.progress)
        return [*effects, Follow()]

    def restoring(self, changelog: TopicPartition) -> tuple[Task, str] | None:
        """The task, and the name of its store, that takes records of a changelog now; None if none does."""
        if self.committing:
            return None  # the commit may be about to write to the same store
        for task in self.tasks.values():
            for name in task.stores:
                if self.changelog(task, name) == changelog:
                    return None if task.state is State.RUNNING else (task, name)
        return None

    def release(self, view: ConsumerView) -> list[Effect]:
        """Let those process that are restored, and to which everything has come that a resize sends them."""
        if self.committing:
            return []
        ready = [
            task
            for task in self.tasks.values()
            if task.state is State.CATCHING_UP
            and task.restored
            and task.id not in self.removed
            and self._inputs.arrived(view, task)
        ]
        effects: list[Effect] = []
        for task in ready:
            task.run()
            effects.append(Resume(self._assigned_here(view, task.id)))
            log.info("%s runs, with %d keys", task.id, task.entries)
        return [*effects, Follow()] if ready else []

    def find_lost_arrivals(self, view: ConsumerView) -> list[Effect]:
        """Let no task wait for state whose mark is gone from its changelog."""
        return [] if self.committing else self._lost_arrivals.look(view, self.tasks)

    def note_lags(self, lags: Mapping[TopicPartition, int]) -> list[Effect]:
        """How much of each changelog is still to be read, where that is known. When every copy that was being built has
        caught up, the group can assign tasks to them, and need not wait for a probing rebalance (KIP-441)."""
        warming = [task for task in self.tasks.values() if task.warming]
        for task in warming:
            changelogs = [self.changelog(task, name) for name in task.stores]
            if all(one in lags for one in changelogs) and sum(lags[one] for one in changelogs) <= self._acceptable_lag:
                task.warming = False
                log.info("%s is warm", task.id)
        return [Rejoin()] if warming and not any(task.warming for task in warming) else []

    # inside

    def _is_aimless(self, view: ConsumerView, task: Task) -> bool:
        if task.state is State.STANDBY:
            return task.unchecked
        return task.state is State.CATCHING_UP and task.targets is None and self._positions_known(view, task)

    def _positions_known(self, view: ConsumerView, task: Task) -> bool:
        """Whether the input is ready, and with it everything decided that the owner before had begun."""
        if task.id in self.removed:
            return self.removed.decided(task.id)
        present = self._assigned_here(view, task.id)
        known = bool(present) and all(view.position(one) >= 0 for one in present)
        if known:
            for one in present:
                self._offsets.setdefault(one, view.position(one))
        return known

    def _assigned_here(self, view: ConsumerView, task: TaskId) -> list[TopicPartition]:
        """The input partitions of a task that the consumer reads."""
        mine = view.assignment()
        every = (TopicPartition(topic, task.partition) for topic in self._built.subtopologies[task.subtopology].sources)
        return [one for one in every if one in mine]

    def _close(self, task_id: TaskId) -> Close:
        task = self.tasks.pop(task_id)
        self._parked[task_id] = task.checkpoint_sum
        return Close(task)
