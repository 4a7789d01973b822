"""Shares a client's tasks out among its threads: as evenly as possible, and to their previous threads.

Three rounds share one count per thread: stateful tasks, standbys, stateless tasks. In each round a thread first takes
its previous tasks, the most complete state first, up to the minimum that every thread gets. Then the threads below that
are filled up in turn. The rest goes one each to threads at the minimum, first to previous owners. Dealing in sorted
order mixes subtopologies. Source: StreamsPartitionAssignor of Kafka Streams, 3.2 and later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from anabranch.clients.streams.task_id import TaskId

ThreadShares = dict[str, list[TaskId]]
"""Tasks by member."""


class Threads:
    """The threads of one client, and their task counts."""

    def __init__(self, members: Collection[str], had: Mapping[str, Sequence[TaskId]]) -> None:
        self._members = sorted(members)
        self._had = had
        """The previous stateful tasks of each member, those with the least lag first."""
        self._load = dict.fromkeys(self._members, 0)

    def share(self, tasks: Collection[TaskId], *, stateful: bool) -> ThreadShares:
        """Share out one kind of tasks, on top of earlier rounds."""
        least = (sum(self._load.values()) + len(tasks)) // len(self._members)
        left = dict.fromkeys(sorted(tasks))
        shares: ThreadShares = {member: [] for member in self._members}
        refused = self._keep(shares, left, least) if stateful else {}
        self._fill(shares, left, least)
        self._top_up(shares, left, least, refused)
        return shares

    def _keep(self, shares: ThreadShares, left: dict[TaskId, None], least: int) -> dict[TaskId, str]:
        """Assign threads their previous tasks, up to the minimum. Returns task -> thread for those beyond it."""
        refused: dict[TaskId, str] = {}
        for member in self._members:
            for task in self._had.get(member, ()):
                if task not in left:
                    continue
                if self._load[member] < least:
                    self._give(member, task, shares, left)
                else:
                    refused[task] = member
        return refused

    def _fill(self, shares: ThreadShares, left: dict[TaskId, None], least: int) -> None:
        """Deal tasks in turn to threads below the minimum."""
        waiting = deque(member for member in self._members if self._load[member] < least)
        while waiting:
            member = waiting.popleft()
            self._give(member, next(iter(left)), shares, left)
            if self._load[member] < least:
                waiting.append(member)

    def _top_up(
        self, shares: ThreadShares, left: dict[TaskId, None], least: int, refused: Mapping[TaskId, str]
    ) -> None:
        """Assign one more task to threads at the minimum, while tasks are left."""
        waiting = [member for member in self._members if self._load[member] == least]
        for task in sorted(refused):
            if task in left and refused[task] in waiting:
                waiting.remove(refused[task])
                self._give(refused[task], task, shares, left)
        for task, member in zip(list(left), waiting, strict=False):
            self._give(member, task, shares, left)
        assert not left, f"{len(left)} tasks are unassigned"

    def _give(self, member: str, task: TaskId, shares: ThreadShares, left: dict[TaskId, None]) -> None:
        shares[member].append(task)
        del left[task]
        self._load[member] += 1
