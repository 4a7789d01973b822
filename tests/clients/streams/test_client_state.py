"""The comparison of clients as places for a task."""

from __future__ import annotations

import pytest

from anabranch.clients.streams.client_state import ClientState, improves, least_loaded, states_of
from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_assignor import UNBOUNDED_LAG, Client
from anabranch.clients.streams.task_id import TaskId

TASK, OTHER = TaskId(0, 0), TaskId(0, 1)


def state(number: int, capacity: int, *active: TaskId, lag: int = 0) -> ClientState:
    made = ClientState(Client(process_id=bytes([number]) * 16, capacity=capacity, lags={TASK: lag}))
    made.active.update(active)
    return made


@pytest.mark.parametrize(
    ("source", "target", "better"),
    [
        ((3, 1), (1, 1), True),
        ((2, 1), (1, 1), False),
        ((2, 1), (0, 1), True),
        ((1, 1), (0, 1), False),
        ((4, 2), (1, 1), False),
        ((3, 2), (1, 1), False),
        ((4, 1), (3, 2), True),
    ],
    ids=["even", "turned around", "one each", "only turned around", "equal loads", "half a task", "more threads"],
)
def test_move_improves_balance_only_if_result_is_more_even(
    source: tuple[int, int], target: tuple[int, int], better: bool
) -> None:
    assert improves(source, target) is better
    if better:
        moved, taken = (source[0] - 1, source[1]), (target[0] + 1, target[1])
        assert not improves(taken, moved), "nothing goes to and fro"


def test_load_counts_active_and_standby_tasks_per_thread() -> None:
    one, two = state(1, 1, TASK), state(2, 2, TASK)
    two.standby.add(OTHER)
    assert one.load == two.load == 1 and (two.active_load, two.count) == (0.5, 2)
    assert two.has_more_room_than(one) and not one.has_more_room_than(two), "the same load on more threads"
    assert not one.has_more_room_than(one)
    assert two.holds(OTHER) and two.holds(TASK) and not one.holds(OTHER)


def test_client_within_acceptable_lag_is_caught_up() -> None:
    for lag, acceptable, caught_up in [(RUNNING, 0, True), (5, 5, True), (6, 5, False), (6, UNBOUNDED_LAG, True)]:
        assert state(1, 1, lag=lag).is_caught_up(TASK, acceptable) is caught_up


def test_clients_are_sorted_by_process_id_as_in_java() -> None:
    states = states_of([state(number, 1).client for number in (1, 200, 2)])
    assert [one.client.process_id[0] for one in states] == [200, 1, 2], "halves of a UUID are signed"
    states[0].active.add(TASK)
    assert least_loaded(states, lambda _: True) is states[1]
    assert least_loaded(states, lambda _: False) is None
