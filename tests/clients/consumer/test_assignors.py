from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clients.consumer.assignors import assign_cooperatively, assign_lineage, assign_range, assign_round_robin
from anabranch.clients.consumer.consumer_partition_assignor import MemberView, TopicView
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition

Assign = Callable[[Sequence[MemberView], Mapping[str, TopicView]], dict[str, list[TopicPartition]]]


def members(*names: str, owned: dict[str, list[int]] | None = None) -> list[MemberView]:
    return [
        MemberView(name, ("t",), tuple(TopicPartition("t", index) for index in (owned or {}).get(name, [])))
        for name in names
    ]


def indexes(assignment: dict[str, list[TopicPartition]]) -> dict[str, list[int]]:
    return {member: sorted(one.partition for one in partitions) for member, partitions in assignment.items()}


def test_range_assigns_consecutive_partitions() -> None:
    topic = TopicView("t", tuple(range(5)))
    assert indexes(assign_range(members("a", "b"), {"t": topic})) == {"a": [0, 1, 2], "b": [3, 4]}


def test_lineage_keeps_owned_partitions_and_assigns_children_with_their_parents() -> None:
    topic = TopicView("t", tuple(range(4)), lineage=Lineage(1, [(0, 2), (1, 4)]))
    before = members("a", "b", owned={"a": [1], "b": [0]})
    assert indexes(assign_lineage(before, {"t": topic})) == {"a": [1, 3], "b": [0, 2]}


def test_draining_and_live_partitions_are_balanced_separately() -> None:
    topic = TopicView("t", tuple(range(4)), frozenset({2, 3}), Lineage(1, [(0, 4), (1, 2)]))
    spread = indexes(assign_lineage(members("a", "b"), {"t": topic}))
    assert all(len([one for one in mine if one < 2]) == 1 for mine in spread.values())


@pytest.mark.parametrize("assign", [assign_lineage, assign_range, assign_round_robin])
@given(st.data())
def test_lineage_assigns_each_partition_once_and_evenly(assign: Assign, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 20))
    names = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
    owned: dict[str, list[int]] = {}
    for index in range(count):
        owned.setdefault(data.draw(st.sampled_from([*names, "gone"])), []).append(index)
    topic = TopicView("t", tuple(range(count)))
    spread = indexes(assign(members(*names, owned=owned), {"t": topic}))
    assert sorted(index for mine in spread.values() for index in mine) == list(range(count))
    sizes = [len(mine) for mine in spread.values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 20), st.integers(1, 5))
def test_lineage_reassignment_of_unchanged_group_moves_nothing(count: int, size: int) -> None:
    topic = TopicView("t", tuple(range(count)))
    names = [f"m{number}" for number in range(size)]
    first = indexes(assign_lineage(members(*names), {"t": topic}))
    assert indexes(assign_lineage(members(*names, owned=first), {"t": topic})) == first


def test_topic_without_subscribers_is_not_assigned() -> None:
    for assignor in (assign_cooperatively, assign_lineage, assign_range, assign_round_robin):
        assert assignor([MemberView("a", ("other",))], {"t": TopicView("t", (0, 1))}) == {"a": []}
