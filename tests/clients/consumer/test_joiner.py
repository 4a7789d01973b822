"""Which metadata a member waits for after a join."""

from __future__ import annotations

from anabranch import TopicPartition
from anabranch.clients.consumer.joiner import knows_new_partitions
from tests.clients.test_metadata import after, partition, response, topic


def test_member_waits_for_partitions_that_are_new_to_it_and_not_for_removed_ones_that_it_reads() -> None:
    metadata = after(response(topic(partition(0))))
    known, removed = TopicPartition("t", 0), TopicPartition("t", 1)
    assert knows_new_partitions(metadata, [known], lambda one: False)
    assert not knows_new_partitions(metadata, [known, removed], lambda one: one == known)
    assert knows_new_partitions(metadata, [known, removed], lambda one: one == removed)
