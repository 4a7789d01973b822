"""The high-availability assignor (KIP-441): aims at balance, and moves no task away from its state.

The ideal placement depends only on the members: stateful tasks are dealt out, then balanced per thread, then standbys,
then stateless tasks. Where state is missing, `movements` deviates from it temporarily and requests a probing rebalance.
Everything is in sorted order, so the same group always gets the same ideal, whichever member leads: once all state is
in place, nothing moves any more.

Source: HighAvailabilityTaskAssignor of Kafka Streams, with the rules of 3.2 and later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from anabranch.clients.streams.client_state import ClientState, improves, placement_of, states_of
from anabranch.clients.streams.movements import Movements
from anabranch.clients.streams.racks import STATELESS_COSTS, can_spare_traffic, spare_traffic
from anabranch.clients.streams.standbys import may_swap, place_standbys
from anabranch.clients.streams.task_assignor import AssignorConfig, Client, Placement, Tasks
from anabranch.clients.streams.task_id import TaskId

TRAFFIC_COST: Final = 10
NON_OVERLAP_COST: Final = 1


def assign_highly_available(clients: Sequence[Client], tasks: Tasks, config: AssignorConfig) -> Placement:
    """Assign tasks (a `TaskAssignor`): the ideal placement, or the nearest one that needs no restore."""
    states = states_of(clients)
    stateful = sorted(tasks.stateful)
    for number, task in enumerate(stateful):
        states[number % len(states)].active.add(task)
    _even_out(states, lambda state: state.active, lambda source, target: True)
    if can_spare_traffic(states, tasks, config):
        spare_traffic(states, stateful, tasks.racks, *config.rack_costs(TRAFFIC_COST, NON_OVERLAP_COST))
    if config.num_standby_replicas:
        place_standbys(states, stateful, config)
        _even_out(states, lambda state: state.standby, lambda source, target: may_swap(source, target, config))
    movements = Movements(states, config)
    moved = movements.lend_active() + movements.lend_standbys()
    stateless = sorted(tasks.every - tasks.stateful)
    for task in stateless:
        min(states, key=lambda state: state.active_load).active.add(task)
    if can_spare_traffic(states, tasks, config):
        spare_traffic(states, stateless, tasks.racks, *STATELESS_COSTS)
    return placement_of(states, probing=moved > 0)


def _even_out(
    states: Sequence[ClientState],
    held: Callable[[ClientState], set[TaskId]],
    may_move: Callable[[ClientState, ClientState], bool],
) -> None:
    """Move tasks of one kind between clients as long as that balances the load per thread."""
    moved = True
    while moved:
        moved = False
        for source in states:
            for target in states:
                if not improves((source.count, source.capacity), (target.count, target.capacity)) or not may_move(
                    source, target
                ):
                    continue
                for task in sorted(held(source)):
                    if not improves((source.count, source.capacity), (target.count, target.capacity)):
                        break
                    if not target.holds(task):
                        held(source).remove(task)
                        held(target).add(task)
                        moved = True
