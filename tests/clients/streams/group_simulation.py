"""A Streams group under churn, without sockets: real assignors, and a model of coordinator, disks and logs.

One seed is one schedule: processes join, leave, crash and come back with what their disks kept; changelogs grow, copies
catch up; versions roll forward and back; inputs are resized; ends of changelogs cannot be had; a rebalance is cut short
by the next. After each step of each member, and after each generation, the judges look (`FrameHandler`). At the end the
churn stops, and the group must come to rest where it should.

Members are cooperative. The model of a member is what a consumer does: it sends what it owns, gives up what the answer
takes away before it takes what is new, joins again at once if it gave something up, and when the assignor says so.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.clients.consumer.consumer_partition_assignor import MemberAssignment, MemberView
from anabranch.clients.metadata import ClusterMetadata, Partition, Topic
from anabranch.clients.streams.assignment_info import AssignorError
from anabranch.clients.streams.high_availability_task_assignor import assign_highly_available
from anabranch.clients.streams.partition_grouper import TopicsInfo
from anabranch.clients.streams.sticky_task_assignor import assign_sticky
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks, StreamsMember, StreamsPartitionAssignor
from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_assignor import AssignorConfig
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.streams_protocol import LATEST_VERSION
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.wire import ZERO_UUID

TOPOLOGY = (
    TopicsInfo(
        source_topics=frozenset({"in"}), sink_topics=frozenset({"again"}), changelog_topics=frozenset({"counts"})
    ),
    TopicsInfo(
        source_topics=frozenset({"again"}),
        repartition_topics={"again": None},
        changelog_topics=frozenset({"sums", "joins"}),
    ),
    TopicsInfo(source_topics=frozenset({"plain"})),
)
TOPICS = ("again", "in", "plain")
OLD_VERSIONS = (5, 6, 7, 9, 10)
PROBING_SINCE = 7
STEP_MS = 20_000
SESSION_MS = 45_000


class Violation(AssertionError):
    """What a judge found."""


@dataclass
class Process:
    """One process, whether it runs or not: its disk stays."""

    process_id: bytes
    version: int = LATEST_VERSION
    disk: dict[TaskId, int] = field(default_factory=dict)
    """How much of a task's changelog is here."""
    threads: list[Thread] = field(default_factory=list)
    started: int = 0


class Thread:
    """One member."""

    def __init__(self, group: Group, process: Process, number: int) -> None:
        self.group = group
        self.process = process
        self.member_id = f"{process.process_id.hex()[:4]}-{process.started}-{number}"
        self.owned: tuple[TopicPartition, ...] = ()
        self.tasks = AssignedTasks()
        self.restoring: set[TaskId] = set()
        self.rejoin_at_ms: int | None = 0
        self.assignor = StreamsPartitionAssignor(
            StreamsMember(
                process_id=process.process_id,
                end_point=f"{process.process_id.hex()}:80",
                latest_version=process.version,
            ),
            TOPOLOGY,
            group,
            offset_sums=self.offset_sums,
            on_tasks=self.take,
            now_ms=lambda: group.now_ms,
            assignor=assign_sticky if group.sticky else assign_highly_available,
            config=group.config,
        )

    def offset_sums(self) -> dict[TaskId, int]:
        """The sums of the process's tasks; its first thread adds unassigned ones."""
        mine = {*self.tasks.active, *self.tasks.standby}
        if self.process.threads[0] is self:
            others = self.process.threads[1:]
            mine = {
                task
                for task in self.process.disk
                if not any(task in one.tasks.active or task in one.tasks.standby for one in others)
            }
        return {task: self.sum_of(task) for task in sorted(mine & self.process.disk.keys())}

    def sum_of(self, task: TaskId) -> int:
        """Running, or how much is here."""
        running = task in self.tasks.active and task not in self.restoring
        return RUNNING if running else self.process.disk[task]

    def take(self, given: AssignedTasks) -> None:
        """New tasks: active ones begin to restore what is missing."""
        if given.error:
            raise Violation(f"{self.member_id} is refused: {given.error.name}")
        gained = [task for task in given.active if task not in self.tasks.active]
        self.restoring = {task for task in self.restoring if task in given.active}
        self.tasks = given
        for task in [*gained, *given.standby]:
            if self.group.is_stateful(task):
                self.process.disk.setdefault(task, 0)
        self.restoring |= {task for task in gained if self.group.is_stateful(task)}
        self.work(random.Random(0), catching_up=0)

    def work(self, rng: random.Random, *, catching_up: int) -> None:
        """Restore and follow by some records; what is restored runs."""
        for task in [*sorted(self.restoring), *sorted(self.tasks.standby)]:
            if not self.group.is_stateful(task):
                continue
            end = self.group.ends.get(task, 0)
            self.process.disk[task] = min(
                end, self.process.disk[task] + (rng.randrange(catching_up) if catching_up else 0)
            )
            if self.process.disk[task] == end:
                self.restoring.discard(task)

    def view(self) -> MemberView:
        """What it joins with."""
        return MemberView(self.member_id, TOPICS, self.owned, self.assignor.subscription_user_data(TOPICS))


class Group:
    """Everything there is; the tools of its leader too."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now_ms = 1_700_000_000_000
        self.sticky = rng.random() < 0.25
        self.config = AssignorConfig(
            acceptable_recovery_lag=rng.choice([0, 50]),
            max_warmup_replicas=rng.choice([1, 2, 4]),
            num_standby_replicas=rng.choice([0, 0, 1, 2]),
            probing_rebalance_interval_ms=60_000,
        )
        self.topics: dict[str, set[int]] = {"in": set(range(rng.randint(1, 6))), "plain": set(range(rng.randint(1, 3)))}
        self.draining: set[int] = set()
        self.ends: dict[TaskId, int] = {}
        self.processes = [Process(rng.randbytes(16)) for _ in range(5)]
        self.generation = 0
        self.ends_known = True
        self.quiet = False
        self.judge = Judge(self)

    # -- what leaders ask for ------------------------------------------------------------------------------------

    async def prepare_topics(self, counts: Mapping[str, int]) -> Collection[str]:
        made = [topic for topic in counts if topic not in self.topics]
        for topic, count in counts.items():
            self.topics.setdefault(topic, set(range(count)))
        return made

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        if not self.ends_known:
            return None
        number = {"counts": 0, "sums": 1, "joins": 1}
        ends = {one: self.ends.get(TaskId(number[one.topic], one.partition), 0) for one in partitions}
        return {
            one: end // 2 + (end % 2 if one.topic == "sums" else 0) if number[one.topic] else end
            for one, end in ends.items()
        }

    def metadata(self) -> ClusterMetadata:
        topics = {
            name: Topic(name, ZERO_UUID, {index: Partition(index, 0, 0, (), (), ErrorCode.NONE) for index in indexes})
            for name, indexes in self.topics.items()
        }
        return ClusterMetadata(topics=topics)

    # -- what can happen -----------------------------------------------------------------------------------------

    @property
    def threads(self) -> list[Thread]:
        return [thread for process in self.processes for thread in process.threads]

    def is_stateful(self, task: TaskId) -> bool:
        return bool(TOPOLOGY[task.subtopology].changelog_topics)

    def start(self, process: Process, version: int = LATEST_VERSION) -> None:
        process.version = version
        process.started += 1
        process.threads = []
        for number in range(self.rng.randint(1, 2)):
            process.threads.append(Thread(self, process, number))

    def stop(self, process: Process, *, keeps_disk: bool) -> None:
        """Gracefully or not: what differs is what others notice, and when; here the partitions are free at once."""
        process.threads = []
        if not keeps_disk:
            process.disk.clear()
        self.ask_for_rebalance()

    def ask_for_rebalance(self) -> None:
        for thread in self.threads[:1]:
            thread.rejoin_at_ms = self.now_ms

    def churn(self) -> None:
        """One thing happens."""
        running = [process for process in self.processes if process.threads]
        resting = [process for process in self.processes if not process.threads]
        what = self.rng.choice(["start", "start", "stop", "crash", "roll", "resize", "lag", "wait", "wait"])
        if (what == "start" or not running) and resting:
            version = LATEST_VERSION if self.rng.random() < 0.7 else self.rng.choice(OLD_VERSIONS)
            self.start(self.rng.choice(resting), version)
        elif what in ("stop", "crash") and len(running) > 1:
            self.stop(self.rng.choice(running), keeps_disk=what == "crash" or self.rng.random() < 0.5)
        elif what == "roll" and running:
            process = self.rng.choice(running)
            self.stop(process, keeps_disk=True)
            self.start(process, self.rng.choice([*OLD_VERSIONS, LATEST_VERSION]))
        elif what == "resize":
            self.resize()
        elif what == "lag":
            self.ends_known = not self.ends_known

    def resize(self) -> None:
        """More partitions at once, and as many between the subtopologies; fewer when they are drained."""
        if self.draining:
            self.topics["in"] -= self.draining
            self.draining = set()
        elif self.rng.random() < 0.5:
            self.topics["in"] |= set(range(self.rng.randint(1, 8)))
            if "again" in self.topics:
                self.topics["again"] |= set(range(1 + max(self.topics["in"])))
        else:
            self.draining = {index for index in self.topics["in"] if index >= self.rng.randint(1, 4)}
        self.ask_for_rebalance()

    def progress(self) -> None:
        """Time passes: running tasks write, copies follow."""
        self.now_ms += STEP_MS
        for thread in self.threads:
            if not self.quiet:
                for task in thread.tasks.active:
                    if self.is_stateful(task) and task not in thread.restoring:
                        self.ends[task] = self.ends.get(task, 0) + self.rng.randrange(200)
                        thread.process.disk[task] = self.ends[task]
            thread.work(self.rng, catching_up=300)

    # -- rebalances ----------------------------------------------------------------------------------------------

    def rebalance_if_due(self) -> bool:
        """Rebalance if a member requests it."""
        if not any(one.rejoin_at_ms is not None and one.rejoin_at_ms <= self.now_ms for one in self.threads):
            return False
        self.generation += 1
        threads = self.threads
        self.rng.shuffle(threads)
        views = [thread.view() for thread in threads]
        leader = self.rng.choice(threads)
        before = self.judge.before(leader)
        answers = run(leader.assignor.assign(self.metadata(), views))
        self.judge.assignment(leader, views, answers, before)
        heard = threads if self.quiet or self.rng.random() < 0.8 else threads[: self.rng.randrange(len(threads) + 1)]
        for thread in heard:
            self.synced(thread, answers[thread.member_id])
            self.judge.ownership()
        for thread in threads[len(heard) :]:
            thread.rejoin_at_ms = self.now_ms  # the next rebalance began before it could sync
        return True

    def synced(self, thread: Thread, answer: MemberAssignment) -> None:
        gave_up = not set(thread.owned) <= set(answer.partitions)
        thread.owned = tuple(one for one in thread.owned if one in answer.partitions)
        thread.rejoin_at_ms = thread.assignor.on_assignment(answer, self.generation)
        thread.owned = answer.partitions
        if gave_up:
            thread.rejoin_at_ms = self.now_ms

    # -- a schedule ----------------------------------------------------------------------------------------------

    def play(self, steps: int = 10) -> Counter[str]:
        """Churn, then rest. Raises Violation."""
        self.start(self.processes[0])
        for _ in range(steps):
            self.churn()
            for _ in range(self.rng.randint(0, 3)):
                self.rebalance_if_due()
            self.progress()
        self.rest()
        return self.judge.seen

    def rest(self) -> None:
        """Check that the group becomes stable within the maximal number of rebalances for its tasks."""
        self.quiet = self.ends_known = True
        self.topics["in"] -= self.draining
        self.draining = set()
        self.ask_for_rebalance()
        rebalances = 0
        bound = 30 + 3 * (1 + self.config.num_standby_replicas) * sum(map(len, self.topics.values()))
        while any(thread.rejoin_at_ms is not None or thread.restoring for thread in self.threads):
            rebalances += self.rebalance_if_due()
            self.progress()
            if rebalances > bound:
                raise Violation(f"no rest after {rebalances} rebalances")
        self.judge.rest(rebalances)


class Judge:
    """Looks at each step, and counts what it had to look at."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.seen: Counter[str] = Counter()

    def before(self, leader: Thread) -> dict[TaskId, Process]:
        """Which process runs what, before an assignment."""
        return {
            task: thread.process
            for thread in self.group.threads
            for task in thread.tasks.active
            if task not in thread.restoring
        }

    def ownership(self) -> None:
        """No task has two owners, ever; what a member owns is what its tasks read; no copy beside the original."""
        owner: dict[TaskId, Thread] = {}
        for thread in self.group.threads:
            for task in thread.tasks.active:
                self.seen["tasks owned"] += 1
                if task in owner:
                    raise Violation(f"{task} is active on {owner[task].member_id} and {thread.member_id}")
                owner[task] = thread
            reads = sorted(one for partitions in thread.tasks.active.values() for one in partitions)
            if reads != sorted(thread.owned):
                raise Violation(f"{thread.member_id} owns {thread.owned} and its tasks read {reads}")
            if beside := thread.tasks.active.keys() & thread.tasks.standby.keys():
                raise Violation(f"{thread.member_id} has a copy beside its own: {beside}")

    def assignment(
        self,
        leader: Thread,
        views: Sequence[MemberView],
        answers: Mapping[str, MemberAssignment],
        running: Mapping[TaskId, Process],
    ) -> None:
        """Nothing is given that another has; running tasks move only to who has caught up; the budget is kept."""
        led = leader.assignor.last_led
        assert led is not None
        if led.error is not AssignorError.NONE:
            raise Violation(f"{leader.member_id} finds no assignment: {led.error.name}")
        self.seen["generations"] += 1
        self.seen["waiting"] += bool(led.waiting)
        self.seen["unknown ends"] += not self.group.ends_known
        self.seen["probing"] += led.probing_at_ms is not None
        owners = {partition: view.member_id for view in views for partition in view.owned}
        for member_id, answer in answers.items():
            for partition in answer.partitions:
                if owners.get(partition, member_id) != member_id:
                    raise Violation(f"{partition} is given to {member_id} while {owners[partition]} has it")
        versions = {thread.process.version for thread in self.group.threads}
        self.seen["mixed versions"] += len(versions) > 1
        spoken = min(thread.assignor.used_version for thread in self.group.threads)
        if not self.group.sticky and self.group.ends_known and spoken >= PROBING_SINCE:
            self._movements(leader, views, running)
            self._budget(leader)

    def _movements(self, leader: Thread, views: Sequence[MemberView], running: Mapping[TaskId, Process]) -> None:
        led = leader.assignor.last_led
        assert led is not None and led.placement is not None
        if led.from_the_future:
            return  # nothing is known of their state
        for process_id, tasks in led.placement.active.items():
            target = next(one for one in self.group.processes if one.process_id == process_id)
            for task in tasks & running.keys():
                if running[task] is target or not self.group.is_stateful(task):
                    continue
                self.seen["moves of running tasks"] += 1
                missing = self.group.ends.get(task, 0) - target.disk.get(task, 0)
                if missing > self.group.config.acceptable_recovery_lag:
                    raise Violation(f"{task} runs, and is to move to where {missing} records are missing")

    def _budget(self, leader: Thread) -> None:
        led = leader.assignor.last_led
        assert led is not None and led.placement is not None
        copies = Counter(task for tasks in led.placement.standby.values() for task in tasks)
        replicas = min(self.group.config.num_standby_replicas, len(led.placement.standby) - 1)
        warmups = sum(max(0, count - replicas) for count in copies.values())
        self.seen["warm-ups"] += warmups
        if warmups > self.group.config.max_warmup_replicas:
            raise Violation(f"{warmups} warm-ups, and no more than {self.group.config.max_warmup_replicas} may be")

    def rest(self, rebalances: int) -> None:
        """Every task runs once, all members use one version, and another rebalance changes nothing."""
        group = self.group
        self.seen["rebalances until rest"] += rebalances
        owned = Counter(task for thread in group.threads for task in thread.tasks.active)
        expected = {TaskId(0, index) for index in group.topics["in"]}
        expected |= {TaskId(1, index) for index in group.topics["again"]}
        expected |= {TaskId(2, index) for index in group.topics["plain"]}
        if owned != Counter(expected):
            raise Violation(f"at rest these are not active once: {expected ^ owned.keys()}, {owned}")
        if behind := [task for thread in group.threads for task in thread.restoring]:
            raise Violation(f"at rest these are not restored: {behind}")
        version = min(thread.process.version for thread in group.threads)
        if any(thread.assignor.used_version != version for thread in group.threads):
            raise Violation(f"at rest not everybody speaks version {version}")
        if version < PROBING_SINCE:
            return  # without offsets nobody knows what has caught up, and nobody can be asked to look again
        tasks = {thread.member_id: thread.tasks.active for thread in group.threads}
        group.ask_for_rebalance()
        group.rebalance_if_due()
        if tasks != {thread.member_id: thread.tasks.active for thread in group.threads}:
            raise Violation("another rebalance moves something for nothing")
        if not group.sticky:
            counts = [
                sum(group.is_stateful(task) for thread in process.threads for task in thread.tasks.active)
                / len(process.threads)
                for process in group.processes
                if process.threads
            ]
            if max(counts) - min(counts) > 1:
                raise Violation(f"at rest stateful tasks per thread are {counts}")


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


def play(seed: int, steps: int = 10) -> Counter[str]:
    """One schedule: what its judges had to look at. Raises Violation."""
    return Group(seed).play(steps)
