"""Reduces traffic between racks: clients swap active tasks, and each keeps its number of tasks (KIP-925, min_traffic).

Running a task on a client costs traffic for each partition without a replica in the client's rack, and a penalty for
leaving its placed client. Among all placements with the same numbers of tasks, negative cycle cancellation finds one of
minimal cost: as long as tasks can rotate between clients at a lower cost, they do. On a client, tasks with equal costs
are interchangeable, so the search is over clients, not tasks.

Invariant: no client's number of tasks changes. Source: RackAwareTaskAssignor of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from anabranch.clients.streams.client_state import ClientState
from anabranch.clients.streams.task_assignor import AssignorConfig, Tasks
from anabranch.clients.streams.task_id import TaskId

Costs = tuple[int, ...]
"""The cost of a task on each client."""

STATELESS_COSTS: Final = (1, 0)
"""Costs of traffic, and of leaving the placed client: a task without state may run anywhere."""


def can_spare_traffic(states: Sequence[ClientState], tasks: Tasks, config: AssignorConfig) -> bool:
    """Whether the strategy is min_traffic, and the racks of all clients and replicas are known."""
    return (
        config.rack_aware_assignment_strategy == "min_traffic"
        and all(state.client.rack for state in states)
        and all(tasks.racks.get(task) and all(tasks.racks[task]) for task in tasks.every)
    )


def spare_traffic(
    states: Sequence[ClientState],
    tasks: Collection[TaskId],
    racks: Mapping[TaskId, Sequence[Collection[str]]],
    traffic_cost: int,
    non_overlap_cost: int,
) -> None:
    """Swap these active tasks between clients until no exchange costs less."""
    swap = _Exchange(len(states))
    for here, state in enumerate(states):
        for task in sorted(state.active & frozenset(tasks)):
            costs = tuple(
                traffic_cost * sum(other.client.rack not in replicas for replicas in racks[task])
                + non_overlap_cost * (there != here)
                for there, other in enumerate(states)
            )
            swap.holds[here].setdefault(costs, []).append(task)
            state.active.remove(task)
    while cycle := swap.negative_cycle():
        swap.turn(cycle)
    for state, held in zip(states, swap.holds, strict=True):
        state.active.update(task for same in held.values() for task in same)


class _Exchange:
    """The tasks of each client, grouped by their costs on every client."""

    def __init__(self, clients: int) -> None:
        self.holds: list[dict[Costs, list[TaskId]]] = [{} for _ in range(clients)]

    def negative_cycle(self) -> list[int]:
        """Return clients that can each give a task to the next at a lower total cost; empty without such a cycle.

        Bellman-Ford: after as many rounds as there are clients, a cost that still falls is on a cycle.
        """
        clients = range(len(self.holds))
        edges = [
            (giver, taker, min(costs[taker] - costs[giver] for costs in self.holds[giver]))
            for giver in clients
            if self.holds[giver]
            for taker in clients
            if giver != taker
        ]
        cost = [0] * len(self.holds)
        before = [-1] * len(self.holds)
        last = -1
        for _ in clients:
            last = -1
            for giver, taker, price in edges:
                if cost[giver] + price < cost[taker]:
                    cost[taker], before[taker], last = cost[giver] + price, giver, taker
            if last < 0:
                return []
        for _ in clients:
            last = before[last]
        cycle = [last]
        while before[cycle[-1]] != last:
            cycle.append(before[cycle[-1]])
        return cycle[::-1]

    def turn(self, cycle: Sequence[int]) -> None:
        """Move each client's cheapest tasks to the next in the cycle: as many as all of them have of the kind."""
        steps = []
        for giver, taker in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            costs = min(self.holds[giver], key=lambda one: (one[taker] - one[giver], one))
            steps.append((giver, taker, costs))
        count = min(len(self.holds[giver][costs]) for giver, _, costs in steps)
        given = []
        for giver, _, costs in steps:
            same = self.holds[giver][costs]
            given.append(same[:count])
            self.holds[giver][costs] = same[count:]
            if not self.holds[giver][costs]:
                del self.holds[giver][costs]
        for (_, taker, costs), tasks in zip(steps, given, strict=True):
            self.holds[taker].setdefault(costs, []).extend(tasks)
