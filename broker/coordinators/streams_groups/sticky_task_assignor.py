"""The sticky task assignor: each member keeps its tasks as far as the balance allows.

Active tasks come first: to their previous member, then to one with a standby, each up to its quota; the rest goes to
the process with the least load per thread. Then come standbys of stateful tasks, never two copies of a task in one
process. Ids decide ties, so that a new coordinator computes the same assignment.

Source: KIP-1071; Kafka's StickyTaskAssignor and ProcessState, 4.2.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import field

from anabranch.broker.coordinators.streams_groups.configured_topology import ConfiguredSubtopology
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, NO_TASKS, STANDBY, Role, Tasks, each
from anabranch.protocol.values import slotted

Task = tuple[str, int]
"""(subtopology, partition)"""
Holders = Mapping[Role, Mapping[Task, list[str]]]
"""Role -> task -> the members that had it."""


@slotted
class _Share:
    """The quota of tasks per member, recomputed over the members that have not reached it."""

    tasks: int
    members: int

    @property
    def each(self) -> int:
        """The quota, rounded up."""
        return -(-self.tasks // self.members) if self.members else 0

    def set_task_count(self, count: int) -> None:
        """Record that a member has this many tasks."""
        if count == self.each:
            self.tasks -= count
            self.members -= 1


@slotted
class _Process:
    """An instance of the application; its threads are members."""

    process_id: str
    counts: dict[str, int] = field(default_factory=dict)
    """Member -> its number of tasks."""
    tasks: set[Task] = field(default_factory=set)
    total: int = 0
    by_count: list[tuple[int, str]] = field(default_factory=list)
    """A heap of members; outdated rows are skipped."""

    @property
    def load(self) -> float:
        return self.total / len(self.counts)

    def add(self, member_id: str, count: int) -> None:
        self.counts[member_id] = count
        heapq.heappush(self.by_count, (count, member_id))

    def least_loaded(self) -> str:
        """Return the thread with the fewest tasks."""
        while self.by_count[0][0] != self.counts[self.by_count[0][1]]:
            heapq.heappop(self.by_count)
        return self.by_count[0][1]


@slotted
class _Assignment:
    processes: dict[str, _Process]
    process_of: Mapping[str, _Process]
    active_share: _Share
    share: _Share
    dealt: dict[str, dict[tuple[Role, str], set[int]]]
    by_load: list[tuple[float, str]]
    """A heap of processes; outdated rows are skipped."""

    def give(self, task: Task, member_id: str, role: Role) -> None:
        name, index = task
        process = self.process_of[member_id]
        self.dealt[member_id].setdefault((role, name), set()).add(index)
        process.tasks.add(task)
        process.total += 1
        process.add(member_id, process.counts[member_id] + 1)
        heapq.heappush(self.by_load, (process.load, process.process_id))
        if role is ACTIVE:
            self.active_share.set_task_count(process.counts[member_id])
        self.share.set_task_count(process.counts[member_id])

    def give_to_idlest(self, task: Task, role: Role) -> bool:
        """Give a task to the least loaded process without it; return whether there is one."""
        passed = []
        found: _Process | None = None
        while self.by_load and found is None:
            row = heapq.heappop(self.by_load)
            process = self.processes[row[1]]
            if row[0] == process.load:
                passed.append(row)
                found = None if task in process.tasks else process
        for row in passed:
            heapq.heappush(self.by_load, row)
        if found is not None:
            self.give(task, found.least_loaded(), role)
        return found is not None

    def count(self, member_id: str) -> int:
        return self.process_of[member_id].counts[member_id]

    def lightest(self, members: Iterable[str]) -> str | None:
        """Return the member with the least load of its process, then of its own."""
        return min(members, key=lambda one: (self.process_of[one].load, self.count(one), one), default=None)


def assign(
    members: Mapping[str, tuple[str, Tasks]], subtopologies: Mapping[str, ConfiguredSubtopology], standbys: int
) -> dict[str, Tasks]:
    """Compute the target of each member, given its process and last target."""
    had: dict[Role, dict[Task, list[str]]] = {ACTIVE: {}, STANDBY: {}}
    for member_id in sorted(members):
        for role, name, index in each(members[member_id][1]):
            if role in had:
                had[role].setdefault((name, index), []).append(member_id)
    active = [(name, index) for name, one in subtopologies.items() for index in range(one.task_count)]
    stateful = [task for task in active if subtopologies[task[0]].stateful]
    dealing = _begin(members, len(active), len(stateful) * standbys)
    if members:
        _deal_active(dealing, active, had)
        if standbys:
            _deal_standbys(dealing, stateful, had, standbys)
    return {
        member_id: {where: frozenset(indexes) for where, indexes in tasks.items()} or NO_TASKS
        for member_id, tasks in dealing.dealt.items()
    }


def _begin(members: Mapping[str, tuple[str, Tasks]], active_count: int, standby_count: int) -> _Assignment:
    processes: dict[str, _Process] = {}
    process_of = {}
    for member_id in sorted(members):
        process_id = members[member_id][0]
        process = process_of[member_id] = processes.setdefault(process_id, _Process(process_id))
        process.add(member_id, 0)
    return _Assignment(
        processes,
        process_of,
        active_share=_Share(active_count, len(members)),
        share=_Share(active_count + standby_count, len(members)),
        dealt={member_id: {} for member_id in sorted(members)},
        by_load=[(0.0, process_id) for process_id in sorted(processes)],
    )


def _deal_active(dealing: _Assignment, tasks: list[Task], had: Holders) -> None:
    left = sorted(tasks, key=lambda task: (task[1], task[0]))  # keeps partitions with the same number together
    for role in (ACTIVE, STANDBY):
        kept = set()
        for task in left:
            before = dealing.lightest(had[role].get(task, ()))
            if before is not None and dealing.count(before) < dealing.active_share.each:
                dealing.give(task, before, ACTIVE)
                kept.add(task)
        left = [task for task in left if task not in kept]
    for task in sorted(left):
        dealing.give_to_idlest(task, ACTIVE)


def _deal_standbys(dealing: _Assignment, tasks: list[Task], had: Holders, standbys: int) -> None:
    left: list[tuple[Task, int]] = []
    for task in sorted(tasks, key=lambda one: (one[1], one[0]), reverse=True):
        for number in range(standbys):
            before = _copy_holder(dealing, task, had)
            if before is None:
                left.append((task, standbys - number))
                break
            dealing.give(task, before, STANDBY)
    for task, count in sorted(left, reverse=True):
        while count and dealing.give_to_idlest(task, STANDBY):
            count -= 1  # until there are fewer processes than copies


def _copy_holder(dealing: _Assignment, task: Task, had: Holders) -> str | None:
    """Return a member that has the task's state, no copy in its process, and room below its quota."""
    for role in (ACTIVE, STANDBY):
        candidates = [one for one in had[role].get(task, ()) if task not in dealing.process_of[one].tasks]
        before = dealing.lightest(candidates)
        if before is not None and dealing.count(before) < dealing.share.each:
            return before
    return None
