"""The name of a partition."""

from __future__ import annotations

from anabranch.protocol.topic_partition import TopicPartition


def test_topic_partition_is_printed_as_in_kafka_tools_and_sorts_by_number() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
    ten, two, other = TopicPartition("a", 10), TopicPartition("a", 2), TopicPartition("b", 0)
    assert sorted([other, ten, two]) == [two, ten, other]
