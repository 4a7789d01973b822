"""Sets of partitions: conversion to message rows and back, and comparison."""

from __future__ import annotations

from anabranch.broker.coordinators.consumer_groups import assignment
from anabranch.protocol.consumer_group_records import TopicPartitions
from tests.broker.coordinators.consumer_groups.world import partitions, topic_id


def row(name: str, *indexes: int) -> TopicPartitions:
    return TopicPartitions(topic_id=topic_id(name), partitions=list(indexes))


def test_rows_are_converted_to_sets_and_back() -> None:
    found = assignment.of_rows([row("b", 2, 1), row("a", 0), row("b", 3, 1), row("empty")])
    assert found == partitions(a=[0], b=[1, 2, 3]) and assignment.size(found) == 4
    assert assignment.to_rows(found) == [row("a", 0), row("b", 1, 2, 3)]
    assert list(assignment.each(found)) == [(topic_id("a"), 0), *((topic_id("b"), index) for index in (1, 2, 3))]


def test_overlap_and_inclusion_of_assignments() -> None:
    one, other = partitions(a=[0, 1], b=[0]), partitions(a=[1, 2])
    assert assignment.overlap(one, other) and not assignment.overlap(partitions(a=[0], b=[1]), other)
    assert assignment.within(partitions(a=[1]), one) and not assignment.within(other, one)
    assert assignment.within({}, {}) and not assignment.overlap({}, one)
