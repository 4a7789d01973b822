"""Keeps tasks where their state is until the ideal client has the state (KIP-441).

Given the ideal placement, each task whose ideal client lags is lent to one that lags less, and the ideal client gets a
warm-up copy, within the group's budget. Once it has caught up, the next assignment can use the ideal placement. First
active tasks, then standbys; those with the fewest caught-up clients first.

Rules of Kafka 3.2 and later: a task is also lent if no client has caught up, to the one with the least lag. Source:
TaskMovement of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.clients.streams.client_state import ClientState, least_loaded
from anabranch.clients.streams.task_assignor import AssignorConfig
from anabranch.clients.streams.task_id import TaskId


class Movements:
    """Finds the tasks to lend to another client than the ideal one, within one assignment."""

    def __init__(self, states: Sequence[ClientState], config: AssignorConfig) -> None:
        self._states = states
        self._acceptable_lag = config.acceptable_recovery_lag
        self._warmups_left = config.max_warmup_replicas
        self._warming: set[tuple[bytes, TaskId]] = set()

    def lend_active(self) -> int:
        """Let caught-up clients run tasks whose ideal clients cannot run them yet; return their number."""
        todo = self._needed_movements(lambda state: state.active)
        for _, task, _, target in todo:
            source = least_loaded(self._states, lambda one: task in one.standby and self._caught_up(one, task))  # noqa: B023
            source = source or least_loaded(self._states, lambda one: self._caught_up(one, task))  # noqa: B023
            source = source or self._furthest(task, target, lambda _: True)
            assert source is not None, f"{task}: no client is more caught up than its ideal one, so it should not move"
            if task in source.standby:
                source.standby.remove(task)
                target.standby.add(task)
            elif self._warm_up():
                target.standby.add(task)
                self._warming.add((target.client.process_id, task))
            target.active.remove(task)
            source.active.add(task)
        return len(todo)

    def lend_standbys(self) -> int:
        """Lend standbys likewise, except those that are being warmed up."""
        moved = 0
        for _, task, _, target in self._needed_movements(lambda state: state.standby):
            source = least_loaded(self._states, lambda one: not one.holds(task) and self._caught_up(one, task))  # noqa: B023
            source = source or self._furthest(task, target, lambda one: not one.holds(task))  # noqa: B023
            if source is None:
                continue  # every client with less lag has the task already
            source.standby.add(task)
            if not self._warm_up():
                target.standby.remove(task)
            moved += 1
        return moved

    def _needed_movements(
        self, held: Callable[[ClientState], set[TaskId]]
    ) -> list[tuple[int, TaskId, int, ClientState]]:
        """Return (caught-up clients, task, index of the ideal client, ideal client) of tasks to lend."""
        needed = []
        for place, target in enumerate(self._states):
            for task in held(target):
                if self._caught_up(target, task) or (target.client.process_id, task) in self._warming:
                    continue
                if min(state.lag(task) for state in self._states) < target.lag(task):
                    caught_up = sum(self._caught_up(state, task) for state in self._states)
                    needed.append((caught_up, task, place, target))
        return sorted(needed, key=lambda one: one[:3])

    def _furthest(self, task: TaskId, target: ClientState, may: Callable[[ClientState], bool]) -> ClientState | None:
        """Return the client with the least lag of a task, if less than the ideal client's."""
        bound = (target.lag(task), self._states.index(target))
        ahead = [(state.lag(task), place) for place, state in enumerate(self._states) if may(state)]
        first = min((one for one in ahead if one < bound), default=None)
        return None if first is None else self._states[first[1]]

    def _caught_up(self, state: ClientState, task: TaskId) -> bool:
        return state.is_caught_up(task, self._acceptable_lag)

    def _warm_up(self) -> bool:
        self._warmups_left -= 1
        return self._warmups_left >= 0
