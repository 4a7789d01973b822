"""What a person is told of partitions that were merged away."""

from __future__ import annotations

from anabranch.draining import Draining, drain_lines
from anabranch.protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("t", 5)


def test_read_by_all_is_what_the_slowest_group_has_committed() -> None:
    assert Draining(PARTITION, 1000, {"a": 900, "b": 20}).read_by_all == 20
    assert Draining(PARTITION, 1000, {}).read_by_all == 1000, "nobody is waited for"


def test_each_group_has_a_line_with_what_it_has_left() -> None:
    lines = drain_lines("t", [Draining(PARTITION, 1000, {"slow": 20, "ahead": 1001})])
    assert [line.split() for line in lines] == [
        ["partition", "end", "group", "committed", "to", "read"],
        ["5", "1,000", "ahead", "1,001", "0"],
        ["5", "1,000", "slow", "20", "980"],
    ]


def test_where_there_is_nothing_to_drain_that_is_said() -> None:
    assert drain_lines("t", []) == ["t has no partition that was merged away"]
    assert "(no group reads the topic)" in drain_lines("t", [Draining(PARTITION, 3, {})])[1]
