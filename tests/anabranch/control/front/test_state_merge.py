"""Each part of a merged state comes from the node that knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from anabranch.control.front.state_merge import (
    MergedState,
    merge_groups,
    merge_nodes,
    merge_states,
    merge_topics,
    merge_transactions,
)

if TYPE_CHECKING:
    from anabranch.control.state import ClusterStateRow, GroupRow, NodeRow, PartitionRow, TopicRow, TransactionRow

ABSENT = (-1, -1)


def partition(
    *, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2), hw: int = -1, **logs: tuple[int, int]
) -> PartitionRow:
    replicas = [
        {"node": node, "start": start, "end": end}
        for node, (start, end) in ((one, logs.get(f"n{one}", ABSENT)) for one in (1, 2))
    ]
    row = {"partition": 0, "leader": leader, "leader_epoch": epoch, "isr": list(isr), "high_watermark": hw}
    return cast("PartitionRow", {**row, "replicas": replicas, "drains": False})


def topic(*partitions: PartitionRow, generation: int = 0, name: str = "t") -> TopicRow:
    numbered = [cast("PartitionRow", {**one, "partition": index}) for index, one in enumerate(partitions)]
    return {"topic": name, "generation": generation, "history": [], "partitions": numbered}


def node(node_id: int, **fields: Any) -> NodeRow:
    return cast("NodeRow", {"node": node_id, "host": "h", "port": 1, "running": True, **fields})


def group(**fields: Any) -> GroupRow:
    absent: dict[str, Any] = {"group": "g", "type": "classic", "coordinator": 2, "state": "Stable", "generation": 1}
    return cast("GroupRow", {**absent, "members": [], "withheld": [], "offsets": [], "lag": 0, **fields})


def test_high_watermark_and_isr_come_from_the_leader_and_logs_from_their_replicas() -> None:
    (found,) = merge_topics(
        {
            1: [topic(partition(isr=(1,), hw=5, n1=(0, 7)))],
            2: [topic(partition(isr=(1, 2), n2=(1, 5)))],
        }
    )
    (row,) = found["partitions"]
    assert (row["high_watermark"], row["isr"]) == (5, [1])
    assert [(one["start"], one["end"]) for one in row["replicas"]] == [(0, 7), (1, 5)]


def test_deposed_leader_that_still_reports_is_not_believed() -> None:
    (found,) = merge_topics(
        {
            1: [topic(partition(leader=1, epoch=0, hw=9, n1=(0, 9)))],
            2: [topic(partition(leader=2, epoch=1, isr=(2,), hw=4, n2=(0, 4)))],
        }
    )
    (row,) = found["partitions"]
    assert (row["leader"], row["leader_epoch"], row["high_watermark"], row["isr"]) == (2, 1, 4, [2])


def test_leader_that_does_not_answer_leaves_no_high_watermark() -> None:
    (found,) = merge_topics({2: [topic(partition(leader=1, n2=(0, 4)))]})
    (row,) = found["partitions"]
    assert (row["high_watermark"], row["isr"], row["replicas"][0]["end"]) == (-1, [1, 2], -1)


def test_leader_that_does_not_know_its_new_epoch_yet_is_still_asked_for_its_log() -> None:
    behind, ahead = partition(leader=1, epoch=0, isr=(1,), hw=6, n1=(0, 6)), partition(leader=1, epoch=1)
    (found,) = merge_topics({1: [topic(behind)], 2: [topic(ahead)]})
    (row,) = found["partitions"]
    assert (row["leader_epoch"], row["high_watermark"], row["isr"]) == (1, 6, [1])


def test_new_leader_that_does_not_know_it_yet_leaves_no_high_watermark() -> None:
    (found,) = merge_topics({1: [topic(partition(leader=2, epoch=1))], 2: [topic(partition(leader=1, epoch=0))]})
    assert (found["partitions"][0]["leader"], found["partitions"][0]["high_watermark"]) == (2, -1)


def test_number_of_partitions_is_that_of_the_newest_generation() -> None:
    old, new = topic(partition(epoch=9)), topic(partition(), partition(), generation=1)
    for reported in ({1: [old], 2: [new]}, {1: [new], 2: [old]}):
        (found,) = merge_topics(reported)
        assert (found["generation"], len(found["partitions"])) == (1, 2)


def test_topics_are_the_union_by_name() -> None:
    found = merge_topics({1: [topic(name="b")], 2: [topic(name="a"), topic(name="b")]})
    assert [one["topic"] for one in found] == ["a", "b"]


def test_lag_of_a_group_is_counted_by_the_leaders_of_its_partitions() -> None:
    offsets = [{"topic": "t", "partition": 0, "end": -1, "lag": 0, "committed": 3}]
    topics = [topic(partition(hw=10, n1=(2, 10)))]
    (found,) = merge_groups([group(offsets=offsets)], topics)
    assert (found["offsets"][0]["end"], found["offsets"][0]["lag"], found["lag"]) == (10, 7, 7)


def test_partition_without_a_commit_lags_by_its_whole_log() -> None:
    offsets = [{"topic": "t", "partition": 0, "end": -1, "lag": 0, "committed": None}]
    (found,) = merge_groups([group(offsets=offsets)], [topic(partition(hw=10, n1=(2, 10)))])
    assert found["lag"] == 8


def test_records_that_a_share_group_finished_beyond_its_start_are_no_lag() -> None:
    known = {"topic": "t", "partition": 0, "end": 10, "lag": 4, "start": 3}  # three of the seven are finished
    (found,) = merge_groups([group(offsets=[known])], [topic(partition(hw=12, n1=(0, 12)))])
    assert found["lag"] == 6
    unknown = {"topic": "t", "partition": 0, "end": -1, "lag": 0, "start": 3}
    (found,) = merge_groups([group(offsets=[unknown])], [topic(partition(hw=12, n1=(0, 12)))])
    assert found["lag"] == 9


def test_group_and_transactional_id_come_from_their_present_coordinator() -> None:
    """A node that is cut off from ZooKeeper answers with what it had."""
    groups = [group(coordinator=one, lag=0, state=state) for one, state in ((1, "Stable"), (2, "Empty"))]
    offsets = topic(partition(leader=2), name="__consumer_offsets")
    assert [row["coordinator"] for row in merge_groups(groups, [offsets])] == [2]
    unknown = topic(partition(leader=-1), name="__consumer_offsets")
    assert [row["coordinator"] for row in merge_groups(groups, [unknown])] == [1, 2]
    ids = [cast("TransactionRow", {"transactional_id": "tx", "coordinator": one, "state": "Ongoing"}) for one in (1, 2)]
    assert merge_transactions(ids, [topic(partition(leader=1), name="__transaction_state")]) == ids[:1]


def test_offsets_of_a_deleted_topic_stay_as_they_are_reported() -> None:
    offsets = [{"topic": "gone", "partition": 0, "end": 5, "lag": 2, "committed": 3}]
    (found,) = merge_groups([group(offsets=offsets)], [])
    assert found["offsets"] == offsets


def test_node_reports_only_about_itself() -> None:
    known = [node(1), node(2), node(3, running=False)]
    reported = {1: [node(1, controller=True, connections=4), node(2, controller=True)], 3: [node(3, controller=True)]}
    first, second, third = merge_nodes(known, reported)
    assert first == node(1, controller=True, connections=4, frozen=False)
    assert "controller" not in second
    assert third == node(3, running=False)


def test_whether_a_node_is_frozen_is_known_by_the_front() -> None:
    (row,) = merge_nodes([node(1, frozen=True)], {1: [node(1, frozen=False, controller=True)]})
    assert row["frozen"] and row["controller"]


def test_whole_state_is_the_union() -> None:
    transaction = {"transactional_id": "x", "coordinator": 1, "state": "Ongoing", "producer_id": 1, "producer_epoch": 0}
    states = {
        1: {"nodes": [node(1)], "topics": [topic(partition(hw=1))], "groups": [], "transactions": [transaction]},
        2: {"nodes": [node(2)], "topics": [], "groups": [group()], "transactions": []},
    }
    found = merge_states(cast("dict[int, ClusterStateRow]", states), [node(1), node(2)])
    assert [one["node"] for one in found["nodes"]] == [1, 2]
    assert [one["transactional_id"] for one in found["transactions"]] == ["x"]
    rows = MergedState(found)
    wanted, other = rows.topic("t"), rows.group("g")
    assert wanted is not None and other is not None and other["coordinator"] == 2
    assert rows.topic("u") is None and rows.group("h") is None
    assert len(list(rows.topics())) == 1 and len(list(rows.nodes())) == 2
