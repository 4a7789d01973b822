"""The sticky assignor: every task stays in place within equal shares. It does not use lags.

Each thread's quota is the whole number of tasks per thread. A client keeps its active tasks up to its quota, and its
part of the tasks beyond all quotas, which go first to clients above their quota. Kafka deals these again, so that they
move in every rebalance, and for ever in a cooperative group with its two rounds. The rest goes to clients with a copy,
and then to the least loaded client, preferably one where the task meets new tasks, so that not always the same tasks
share a machine.

Two tasks have met when one client has both. Placing never removes a task, so no record of pairs is needed.

`assign_as_before` keeps every active task in place, however uneven; it is used when lags are unknown, and requests a
probing rebalance. Source: StickyTaskAssignor and FallbackPriorTaskAssignor of Kafka Streams.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from anabranch.clients.streams.client_state import ClientState, placement_of, states_of
from anabranch.clients.streams.racks import STATELESS_COSTS, can_spare_traffic, spare_traffic
from anabranch.clients.streams.task_assignor import AssignorConfig, Client, Placement, Tasks
from anabranch.clients.streams.task_id import TaskId

TRAFFIC_COST: Final = 1
NON_OVERLAP_COST: Final = 10

log = logging.getLogger(__name__)


def assign_sticky(clients: Sequence[Client], tasks: Tasks, config: AssignorConfig) -> Placement:
    """Assign tasks (a `TaskAssignor`): tasks stay in place, within equal shares."""
    return _Sticky(clients, tasks).place(config, probing=False)


def assign_as_before(clients: Sequence[Client], tasks: Tasks, config: AssignorConfig) -> Placement:
    """Assign tasks (a `TaskAssignor`): active tasks stay in place, with a probing rebalance soon."""
    return _Sticky(clients, tasks, unlimited=True).place(config, probing=True)


class _Sticky:
    def __init__(self, clients: Sequence[Client], tasks: Tasks, *, unlimited: bool = False) -> None:
        self._states = states_of(clients)
        self._tasks = tasks
        self._unlimited = unlimited
        self._quota = len(tasks.every) // sum(state.capacity for state in self._states)
        self._had_active: dict[TaskId, ClientState] = {}
        self._had_standby: dict[TaskId, list[ClientState]] = {}
        for state in self._states:
            self._had_active |= dict.fromkeys(state.client.previous_active, state)
            for task in state.client.previous_standby:
                self._had_standby.setdefault(task, []).append(state)

    def place(self, config: AssignorConfig, *, probing: bool) -> Placement:
        """Place active tasks, then standbys."""
        self._place_active()
        if not self._unlimited and can_spare_traffic(self._states, self._tasks, config):
            stateful, racks = self._tasks.stateful, self._tasks.racks
            costs = config.rack_costs(TRAFFIC_COST, NON_OVERLAP_COST)
            spare_traffic(self._states, stateful, racks, *costs)
            spare_traffic(self._states, self._tasks.every - stateful, racks, *STATELESS_COSTS)
        self._place_standbys(config.num_standby_replicas)
        return placement_of(self._states, probing=probing)

    def _place_active(self) -> None:
        shares = self._shares()
        left = []
        for task in sorted(self._tasks.every):
            previous = self._had_active.get(task)
            if previous is not None and (self._unlimited or len(previous.active) < shares[previous]):
                previous.active.add(task)
            else:
                left.append(task)
        nowhere = []
        for task in left:
            previous = next((one for one in self._had_standby.get(task, ()) if self._below_quota(one)), None)
            if previous is not None:
                previous.active.add(task)
            else:
                nowhere.append(task)
        for task in nowhere:
            self._pick(task, [one for one in self._states if len(one.active) < shares[one]]).active.add(task)

    def _shares(self) -> dict[ClientState, int]:
        """Return each client's share: its quota, and the rest one at a time, first to clients above it."""
        had = Counter(self._had_active[task] for task in self._tasks.every & self._had_active.keys())
        shares = {state: self._quota * state.capacity for state in self._states}

        def burden(state: ClientState) -> tuple[float, bool, float]:
            load = (shares[state] + 1) / state.capacity
            # with more threads than tasks, no client gains from a task that moves to another's idle thread
            return load if self._quota else shares[state] // state.capacity, shares[state] >= had[state], load

        for _ in range(len(self._tasks.every) - sum(shares.values())):
            shares[min(self._states, key=burden)] += 1
        return shares

    def _place_standbys(self, replicas: int) -> None:
        short = 0
        for task in sorted(self._tasks.stateful):
            for placed in range(replicas):
                candidates = [state for state in self._states if not state.holds(task)]
                if not candidates:
                    short += replicas - placed
                    break
                self._pick(task, candidates).standby.add(task)
        if short:
            log.warning("%d standby tasks have no client: more instances are needed to keep that many copies", short)

    def _below_quota(self, state: ClientState) -> bool:
        return len(state.active) < state.capacity * self._quota

    def _pick(self, task: TaskId, candidates: Sequence[ClientState]) -> ClientState:
        """Return the client that had the task, or a copy of it, or is the least loaded.

        A full one is skipped.
        """
        if len(candidates) == 1:
            return candidates[0]
        had_copy = [state for state in self._had_standby.get(task, ()) if state in candidates]
        active = self._had_active.get(task)
        previous = active if active in candidates else self._least_loaded(task, had_copy)
        if previous is not None and self._is_full(previous):
            previous = self._least_loaded(task, had_copy)
            if previous is not None and self._is_full(previous):
                previous = None
        found = previous or self._least_loaded(task, candidates)
        assert found is not None, "at least one client exists"
        return found

    def _is_full(self, state: ClientState) -> bool:
        return state.count >= state.capacity and any(other.has_more_room_than(state) for other in self._states)

    def _least_loaded(self, task: TaskId, candidates: Sequence[ClientState]) -> ClientState | None:
        met: set[TaskId] = set()
        for state in self._states:
            if state.holds(task):
                met |= state.active | state.standby
        for only_new_company in (True, False):
            least = None
            for state in candidates:
                if not state.count:
                    return state
                if (least is None or state.has_more_room_than(least)) and not (
                    only_new_company and state.active <= met and state.standby <= met
                ):
                    least = state
            if least is not None:
                return least
        return None
