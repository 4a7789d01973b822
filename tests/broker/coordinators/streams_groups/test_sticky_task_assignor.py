"""Tasks are balanced and sticky, and no instance has two copies of one state.

Method: groups by hand, and random ones whose members come and go; Kafka leaves ties to its hash maps, so that what is
compared with it is what it promises.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.coordinators.streams_groups.configured_topology import ConfiguredSubtopology
from anabranch.broker.coordinators.streams_groups.sticky_task_assignor import assign
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, NO_TASKS, STANDBY, Role, Tasks, each
from tests.broker.coordinators.streams_groups.world import active, subtopology

Group = dict[str, tuple[str, Tasks]]


def topology(**counts: int) -> dict[str, ConfiguredSubtopology]:
    """`topology(s0=4, k1=2)`: subtopology 0 with four tasks, and 1 with two that keep a state."""
    return {
        name[1:]: ConfiguredSubtopology(
            subtopology=subtopology(name[1:], "t", keeps=["log"] if name[0] == "k" else []), task_count=count
        )
        for name, count in counts.items()
    }


def fresh(*members: str) -> Group:
    """Members, each an instance of its own; `a1`, `a2` are threads of one."""
    return {one: (one[0], NO_TASKS) for one in members}


def after(members: Group, dealt: Mapping[str, Tasks], *gone: str, new: Iterable[str] = ()) -> Group:
    """The group with its last targets, after members left and joined."""
    return {one: (members[one][0], dealt[one]) for one in members if one not in gone} | fresh(*new)


def held(dealt: Mapping[str, Tasks], role: Role) -> dict[tuple[str, int], list[str]]:
    """Task -> who has it in that role."""
    found: dict[tuple[str, int], list[str]] = {}
    for member_id, tasks in dealt.items():
        for one, name, index in each(tasks):
            if one is role:
                found.setdefault((name, index), []).append(member_id)
    return found


def sizes(dealt: Mapping[str, Tasks], role: Role) -> list[int]:
    return sorted(sum(one is role for one, _, _ in each(tasks)) for tasks in dealt.values())


def test_single_member_is_assigned_all_tasks() -> None:
    assert assign(fresh("a"), topology(s0=3), 0) == {"a": active(s0=(0, 1, 2))}
    assert assign({}, topology(s0=3), 0) == {}
    assert assign(fresh("a", "b"), {}, 0) == {"a": NO_TASKS, "b": NO_TASKS}


def test_members_keep_previous_tasks_up_to_their_share() -> None:
    members = fresh("a")
    dealt = assign(members, topology(s0=4), 0)
    members = after(members, dealt, new="b")
    dealt = assign(members, topology(s0=4), 0)
    assert dealt == {"a": active(s0=(0, 1)), "b": active(s0=(2, 3))}
    members = after(members, dealt, "a", new="c")
    assert assign(members, topology(s0=4), 0) == {"b": active(s0=(2, 3)), "c": active(s0=(0, 1))}


def test_members_that_stay_keep_their_tasks_if_the_share_is_rounded_up() -> None:
    """Who has one more leaves less to each of the others."""
    members = fresh(*"abcde")
    dealt = assign(members, topology(s0=8), 0)
    assert sizes(dealt, ACTIVE) == [1, 1, 2, 2, 2] and dealt["e"] == active(s0=(4,))
    assert assign(after(members, dealt, "e"), topology(s0=8), 0) == {
        **{one: dealt[one] for one in "abc"},
        "d": active(s0=(3, 4)),
    }


def test_tasks_are_balanced_by_threads() -> None:
    dealt = assign(fresh("a1", "a2", "a3", "b1"), topology(s0=8), 0)
    assert sizes(dealt, ACTIVE) == [2, 2, 2, 2]


def test_standby_owner_becomes_active_owner() -> None:
    members = fresh(*"abcd")
    dealt = assign(members, topology(k0=4), 1)
    for gone in members:
        mine = next(task for task, holders in held(dealt, ACTIVE).items() if holders == [gone])
        moved = assign(after(members, dealt, gone), topology(k0=4), 1)
        assert held(moved, ACTIVE)[mine] == held(dealt, STANDBY)[mine]


def test_standby_tasks_are_stateful_and_on_another_process() -> None:
    dealt = assign(fresh("a1", "a2", "b1", "b2"), topology(s0=2, k1=4), 1)
    actives, copies = held(dealt, ACTIVE), held(dealt, STANDBY)
    assert copies.keys() == {("1", index) for index in range(4)}
    assert all(copies[task][0][0] != actives[task][0][0] for task in copies)


def test_standby_tasks_are_limited_by_processes() -> None:
    dealt = assign(fresh("a1", "a2", "b1"), topology(k0=2), 2)
    assert {len(holders) for holders in held(dealt, STANDBY).values()} == {1}
    assert held(assign(fresh("a1", "a2"), topology(k0=2), 2), STANDBY) == {}


MEMBERS = [f"{process}{thread}" for process in "abcd" for thread in "12"]


@given(
    st.lists(st.sets(st.sampled_from(MEMBERS), min_size=1), min_size=1, max_size=6),
    st.dictionaries(st.sampled_from(["s0", "k1", "k2"]), st.integers(0, 7)),
    st.integers(0, 2),
)
def test_random_membership_keeps_one_owner_and_standbys_per_task(
    lives: list[set[str]], counts: dict[str, int], standbys: int
) -> None:
    parts = topology(**counts)
    other_order = dict(reversed(parts.items()))
    all_tasks = {(name, index) for name, one in parts.items() for index in range(one.task_count)}
    members: Group = {}
    dealt: dict[str, Tasks] = {}
    for alive in lives:
        members = after(members, dealt, *(members.keys() - alive), new=sorted(alive - members.keys()))
        dealt = assign(members, parts, standbys)
        assert assign(members, other_order, standbys) == dealt, "the order of subtopologies decides nothing"
        processes = len({process for process, _ in members.values()})
        actives, copies = held(dealt, ACTIVE), held(dealt, STANDBY)
        assert actives.keys() == all_tasks and all(len(one) == 1 for one in actives.values())
        for task in all_tasks:
            holders = [member[0] for member in (*actives[task], *copies.get(task, []))]
            assert len(holders) == len(set(holders)), f"{task} twice in an instance"
            stateful = parts[task[0]].stateful
            assert len(holders) == 1 + (min(standbys, processes - 1) if stateful else 0)
        if not standbys:
            assert max(sizes(dealt, ACTIVE)) <= -(-len(all_tasks) // len(members))
            assert assign(after(members, dealt), parts, 0) == dealt, "nothing moves while nothing changes"


@pytest.mark.parametrize("threads", [1, 1000])
def test_thousand_tasks_are_assigned_to_a_thousand_members_quickly(threads: int) -> None:
    rng = random.Random(5)
    members: Group = {f"m{one}": (f"p{one // threads}", NO_TASKS) for one in range(1000)}
    dealt = assign(members, topology(k0=1000), 1)
    for one in rng.sample(sorted(members), 100):
        del members[one]
    began = time.process_time()
    dealt = assign({one: (members[one][0], dealt[one]) for one in members}, topology(k0=1000), 1)
    assert time.process_time() - began < 1
    assert sizes(dealt, ACTIVE)[-1] <= 2
