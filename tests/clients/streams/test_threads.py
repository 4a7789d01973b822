"""The tasks of a client are spread evenly and stickily over its threads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.threads import Threads


def tasks(*numbers: int) -> list[TaskId]:
    return [TaskId(0, number) for number in numbers]


def test_threads_keep_previous_tasks_within_balance() -> None:
    threads = Threads(("b", "a"), {"a": tasks(3, 1, 0), "b": tasks(2)})
    assert threads.share(tasks(0, 1, 2, 3), stateful=True) == {"a": tasks(3, 1), "b": tasks(2, 0)}


def test_remaining_task_stays_with_its_previous_thread() -> None:
    threads = Threads(("a", "b"), {"a": tasks(2), "b": tasks(0, 1)})
    assert threads.share(tasks(0, 1, 2), stateful=True) == {"a": tasks(2), "b": tasks(0, 1)}


def test_stateless_tasks_go_to_thread_with_fewest_tasks() -> None:
    threads = Threads(("a", "b"), {"a": tasks(0)})
    threads.share(tasks(0), stateful=True)
    assert threads.share(tasks(7, 8, 9), stateful=False) == {"a": tasks(7), "b": tasks(8, 9)}


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(1, 6), st.randoms(use_true_random=False))
def test_every_task_has_one_thread_and_counts_differ_by_at_most_one(
    stateful: set[int], stateless: set[int], count: int, rng: object
) -> None:
    members = [f"m{number}" for number in range(count)]
    had: dict[str, list[TaskId]] = {member: [] for member in members}
    for task in tasks(*stateful):
        had[rng.choice(members)].append(task)  # type: ignore[attr-defined]
    threads = Threads(members, had)
    rounds = [(stateful, threads.share(tasks(*stateful), stateful=True))]
    first = {member: len(share) for member, share in rounds[0][1].items()}
    assert max(first.values()) - min(first.values()) <= 1
    rounds.append((stateless, threads.share([TaskId(1, number) for number in stateless], stateful=False)))
    for wanted, shares in rounds:
        assert sorted(task.partition for share in shares.values() for task in share) == sorted(wanted)
    loads = [sum(len(shares[member]) for _, shares in rounds) for member in members]
    assert max(loads) - min(loads) <= 1


def test_previous_task_that_is_no_longer_shared_is_ignored() -> None:
    assert Threads(("a",), {"a": tasks(5)}).share(tasks(1), stateful=True) == {"a": tasks(1)}


@pytest.mark.parametrize("stateful", [True, False])
def test_no_tasks_give_empty_shares(stateful: bool) -> None:
    assert Threads(("a", "b"), {}).share([], stateful=stateful) == {"a": [], "b": []}
