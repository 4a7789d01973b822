"""Replica placement: Kafka's examples, and general properties."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.controller.placement import assign_replicas, interleave
from anabranch.protocol.errors import ErrorCode, KafkaError


def test_kafka_documented_example() -> None:
    """The table of Kafka's AdminUtils: five brokers, ten partitions, three replicas."""
    placed = assign_replicas(range(5), 10, 3, start_index=0, shift=0)
    assert [placed[p] for p in range(10)] == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],
        [4, 0, 1],
        [0, 2, 3],
        [1, 3, 4],
        [2, 4, 0],
        [3, 0, 1],
        [4, 1, 2],
    ]


def test_added_partitions_continue_replica_rotation() -> None:
    whole = assign_replicas([1, 2, 3], 8, 2, start_index=1, shift=1)
    rest = assign_replicas([1, 2, 3], 4, 2, start_index=1, shift=2, first_partition=4)
    assert sorted(rest) == [4, 5, 6, 7]
    assert [rest[p][0] for p in rest] == [whole[p][0] for p in rest]


def test_replicas_are_spread_over_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    placed = assign_replicas(racks.items(), 12, 3, start_index=0, shift=0)
    assert all(len({racks[one] for one in replicas}) == 3 for replicas in placed.values())
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert set(leaders.values()) == {2}
    assert interleave({0: "a", 1: "b", 2: "a"}) == [0, 1, 2]


def test_replicas_of_partition_are_on_different_brokers() -> None:
    for replication in range(1, 5):
        for replicas in assign_replicas([3, 5, 8, 9], 9, replication, start_index=2, shift=3).values():
            assert len(set(replicas)) == replication


@pytest.mark.parametrize(
    ("partitions", "replication", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts_are_refused(partitions: int, replication: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        assign_replicas([1, 2, 3], partitions, replication, start_index=0, shift=0)
    assert refused.value.code is code
