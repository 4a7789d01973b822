"""Deals tasks to members so that each keeps what it had, as far as shares stay even.

Active tasks first: to who had them active, then to who had them as a standby, each up to its share; the rest goes to
the process with the least load for its threads. Then standbys of what has a state, never two copies of one task in a
process. Who comes first among equals is decided by ids, so that a coordinator that takes over deals alike.

Source: KIP-1071; Kafka's StickyTaskAssignor and ProcessState, 4.2.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.broker.coordinators.streams_groups.configured_topology import ConfiguredSubtopology
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, NO_TASKS, STANDBY, Role, Tasks, each

Task = tuple[str, int]
"""(subtopology, partition)"""
Holders = Mapping[Role, Mapping[Task, list[str]]]
"""Who had a task in which role."""


@dataclass(slots=True)
class _Share:
    """How many tasks a member may have before others are due; what is left is shared by who has not got his yet."""

    tasks: int
    members: int

    @property
    def each(self) -> int:
        """Rounded up."""
        return -(-self.tasks // self.members) if self.members else 0

    def reached(self, count: int) -> None:
        """A member has so many now."""
        if count == self.each:
            self.tasks -= count
            self.members -= 1


@dataclass(slots=True)
class _Process:
    """An instance of the application: its threads are members."""

    process_id: str
    counts: dict[str, int] = field(default_factory=dict)
    """Member -> how many tasks it has got."""
    tasks: set[Task] = field(default_factory=set)
    total: int = 0
    by_count: list[tuple[int, str]] = field(default_factory=list)
    """A heap of members; rows that are not true any more are skipped."""

    @property
    def load(self) -> float:
        """Tasks per thread."""
        return self.total / len(self.counts)

    def add(self, member_id: str, count: int) -> None:
        """A member has so many tasks."""
        self.counts[member_id] = count
        heapq.heappush(self.by_count, (count, member_id))

    def least_loaded(self) -> str:
        """The thread with the fewest tasks."""
        while self.by_count[0][0] != self.counts[self.by_count[0][1]]:
            heapq.heappop(self.by_count)
        return self.by_count[0][1]


@dataclass(slots=True)
class _Assignment:
    """An assignment in the making."""

    processes: dict[str, _Process]
    process_of: Mapping[str, _Process]
    active_share: _Share
    share: _Share
    dealt: dict[str, dict[tuple[Role, str], set[int]]]
    by_load: list[tuple[float, str]]
    """A heap of processes; rows that are not true any more are skipped."""

    def give(self, task: Task, member_id: str, role: Role) -> None:
        """A member gets a task."""
        name, index = task
        process = self.process_of[member_id]
        self.dealt[member_id].setdefault((role, name), set()).add(index)
        process.tasks.add(task)
        process.total += 1
        process.add(member_id, process.counts[member_id] + 1)
        heapq.heappush(self.by_load, (process.load, process.process_id))
        if role is ACTIVE:
            self.active_share.reached(process.counts[member_id])
        self.share.reached(process.counts[member_id])

    def give_to_idlest(self, task: Task, role: Role) -> bool:
        """The process with the least load that does not have the task gets it; whether there is one."""
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
        """How many tasks a member has got."""
        return self.process_of[member_id].counts[member_id]

    def lightest(self, members: Iterable[str]) -> str | None:
        """The member with the least load, of its process and of its own."""
        return min(members, key=lambda one: (self.process_of[one].load, self.count(one), one), default=None)


def assign(
    members: Mapping[str, tuple[str, Tasks]], subtopologies: Mapping[str, ConfiguredSubtopology], standbys: int
) -> dict[str, Tasks]:
    """What each member is to have. Each is given with its process and its last target."""
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
    left = sorted(tasks, key=lambda task: (task[1], task[0]))  # so that partitions of one number come together
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
            count -= 1  # until there are fewer instances than copies


def _copy_holder(dealing: _Assignment, task: Task, had: Holders) -> str | None:
    """Who has the task's state already, may have a copy of it, and has room for one more task."""
    for role in (ACTIVE, STANDBY):
        candidates = [one for one in had[role].get(task, ()) if task not in dealing.process_of[one].tasks]
        before = dealing.lightest(candidates)
        if before is not None and dealing.count(before) < dealing.share.each:
            return before
    return None
