"""Sets of partitions by topic id, which is what everything about assignment is made of.

An assignment is never changed once it is made, so that members, targets and records may share it; a topic without
partitions is not in it, so that equal assignments compare equal. Groups of Kafka Streams are dealt tasks, which are
partitions of subtopologies: what only compares takes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

from anabranch.protocol.consumer_group_records import TopicPartitions

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions."""
NOTHING: Final[Assignment] = {}
Key = TypeVar("Key")
"""A topic id; or a subtopology in a role."""


class Row(Protocol):
    """A topic with partitions, as any message has it."""

    topic_id: bytes
    partitions: list[int]


def of_rows(rows: Iterable[Row]) -> Assignment:
    """What a message lists; a topic that it lists twice is one."""
    found: dict[bytes, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            before = found.get(row.topic_id)
            here = frozenset(row.partitions)
            found[row.topic_id] = here if before is None else before | here
    return found


def to_rows(assignment: Assignment) -> list[TopicPartitions]:
    """The same for a record, in ascending order."""
    return [TopicPartitions(topic_id=one, partitions=sorted(assignment[one])) for one in sorted(assignment)]


def size(assignment: Mapping[Key, frozenset[int]]) -> int:
    """How many partitions there are."""
    return sum(map(len, assignment.values()))


def each(assignment: Assignment) -> Iterator[tuple[bytes, int]]:
    """Every partition, in ascending order."""
    return ((topic_id, index) for topic_id in sorted(assignment) for index in sorted(assignment[topic_id]))


def overlap(one: Mapping[Key, frozenset[int]], other: Mapping[Key, frozenset[int]]) -> bool:
    """Whether any partition is in both."""
    return any(not partitions.isdisjoint(other.get(topic_id, ())) for topic_id, partitions in one.items())


def within(one: Mapping[Key, frozenset[int]], other: Mapping[Key, frozenset[int]]) -> bool:
    """Whether all partitions of the first are in the second."""
    return all(partitions <= other.get(topic_id, frozenset()) for topic_id, partitions in one.items())
