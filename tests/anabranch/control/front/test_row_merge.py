"""The rows of several nodes become one row: each part comes from the node that knows it."""

from __future__ import annotations

from typing import Any

from anabranch.control.front.row_merge import merge_row, merge_traffic


def partition(leader: int, epoch: int, hw: int, ends: dict[int, int], **fields: Any) -> dict[str, Any]:
    """A partition as one node reports it; `ends`: the ends of the logs that it knows."""
    replicas = [[node, 0 if node in ends else -1, ends.get(node, -1)] for node in (1, 2, 3)]
    return {"leader": leader, "epoch": epoch, "hw": hw, "isr": [1, 2, 3], "replicas": replicas, **fields}


def test_partition_has_watermark_of_leader_and_log_of_each_replica() -> None:
    rows = {
        1: partition(1, 4, 7, {1: 9}, isr=[1, 2], generation=2),
        2: partition(1, 4, -1, {2: 8}, generation=1),
        3: partition(1, 3, -1, {3: 5}, generation=1),
    }
    merged = merge_row("partition/t/0", rows)
    assert (merged["hw"], merged["isr"], merged["generation"]) == (7, [1, 2], 2)
    assert merged["replicas"] == [[1, 0, 9], [2, 0, 8], [3, 0, 5]]


def test_partition_whose_leader_is_frozen_has_no_watermark_and_keeps_its_log() -> None:
    rows = {1: partition(1, 4, 7, {1: 9}, generation=0), 2: partition(1, 4, -1, {2: 8}, generation=0)}
    merged = merge_row("partition/t/0", rows, frozen=[1])
    assert (merged["leader"], merged["hw"], merged["replicas"][0]) == (1, -1, [1, 0, 9])


def test_topic_is_the_newest_one_with_the_cuts_of_all_leaders() -> None:
    rows = {
        1: {"topic": "t", "generation": 1, "partitions": 3, "cuts": [[1, 0, 4]]},
        2: {"topic": "t", "generation": 0, "partitions": 2, "cuts": [[0, 0, 6]]},
    }
    assert merge_row("topic/t", rows) == {**rows[1], "cuts": [[0, 0, 6], [1, 0, 4]]}


def test_topic_that_only_a_frozen_node_knows_is_gone() -> None:
    assert merge_row("topic/t", {1: {"topic": "t"}}, frozen=[1]) is None
    assert merge_row("topic/t", {}) is None


def test_group_is_that_of_its_present_coordinator() -> None:
    old, new = {"group": "g", "generation": 3}, {"group": "g", "generation": 4}
    assert merge_row("group/g", {1: old, 2: new}) is new


def test_traffic_of_nodes_is_added_up_with_weighted_means() -> None:
    one = {"span": 1.0, "apis": {"Fetch": [1, 10.0, 1.0, 10.0]}, "nodes": {"1": 1}}
    other = {"span": 1.1, "apis": {"Fetch": [3, 2.0, 0.2, 4.0], "Produce": [0, 0.0, 0.0, 0.0]}, "nodes": {"2": 3}}
    assert merge_traffic([one, other]) == {
        "span": 1.1,
        "apis": {"Fetch": [4, 4.0, 0.4, 10.0]},
        "nodes": {"1": 1, "2": 3},
    }
