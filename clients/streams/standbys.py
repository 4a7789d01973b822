"""Places standby tasks: on the least loaded clients, or apart in every tagged dimension (KIP-708).

With tags: the copies of a task, including its active one, are spread so that no two share a rack, a zone, or another
tag. A dimension with no more values than placed copies has no constraint any more; copies that cannot be placed apart
go to the least loaded client. Source: DefaultStandbyTaskAssignor, ClientTagAwareStandbyTaskAssignor.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from anabranch.clients.streams.client_state import ClientState, least_loaded
from anabranch.clients.streams.task_assignor import AssignorConfig
from anabranch.clients.streams.task_id import TaskId

log = logging.getLogger(__name__)


def place_standbys(states: Sequence[ClientState], stateful: Sequence[TaskId], config: AssignorConfig) -> None:
    """Assign each task its standbys. Its active client is known already."""
    missing: dict[TaskId, int] = {}
    if config.rack_aware_assignment_tags:
        spread = _Spread(states, frozenset(config.rack_aware_assignment_tags))
        for task in stateful:
            missing[task] = spread.place(task, config.num_standby_replicas)
    else:
        missing = dict.fromkeys(stateful, config.num_standby_replicas)
    short = sum(_place_anywhere(states, task, count) for task, count in missing.items())
    if short:
        log.warning("%d standby tasks have no client: more instances are needed to keep that many copies", short)


def may_swap(source: ClientState, target: ClientState, config: AssignorConfig) -> bool:
    """Whether a standby may move between two clients without coming closer to another copy."""
    if not config.rack_aware_assignment_tags:
        return True
    return all(target.client.tags.get(key) == tag for key, tag in source.client.tags.items())


def _place_anywhere(states: Sequence[ClientState], task: TaskId, count: int) -> int:
    """Place copies on the least loaded clients; return how many could not be placed."""
    for placed in range(count):
        state = least_loaded(states, lambda one: not one.holds(task))
        if state is None:
            return count - placed
        state.standby.add(task)
    return 0


class _Spread:
    def __init__(self, states: Sequence[ClientState], keys: frozenset[str]) -> None:
        self._states = states
        self._keys = keys
        self._values: dict[str, set[str]] = {}
        self._tags = {state: frozenset(state.client.tags.items()) for state in states}
        for state in states:
            for key, tag in state.client.tags.items():
                self._values.setdefault(key, set()).add(tag)

    def place(self, task: TaskId, count: int) -> int:
        """Place copies apart from each other and from the active task; return how many could not be placed."""
        last = next(state for state in self._states if task in state.active)
        used: set[tuple[str, str]] = set()
        for placed in range(count):
            self._mark(last, 1 + placed, used)
            found = least_loaded(self._states, lambda one: not one.holds(task) and used.isdisjoint(self._tags[one]))
            if found is None:
                return count - placed
            found.standby.add(task)
            last = found
        return 0

    def _mark(self, state: ClientState, copies: int, used: set[tuple[str, str]]) -> None:
        """Mark a client's tags as used, except in dimensions with no more values than copies."""
        for key, tag in state.client.tags.items():
            if key not in self._keys:
                continue
            if len(self._values[key]) <= copies:
                used -= {(key, one) for one in self._values[key]}
            else:
                used.add((key, tag))
