"""Assignments: sets of partitions by topic id.

An assignment is immutable, so members, targets and records may share it. A topic without partitions is left out, so
that equal assignments compare equal. Streams groups assign tasks, which are partitions of subtopologies: functions that
only compare accept both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

from anabranch.protocol.consumer_group_records import TopicPartitions

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions."""
NOTHING: Final[Assignment] = {}
Key = TypeVar("Key")
"""A topic id, or a subtopology with a role."""


class Row(Protocol):
    """A topic with partitions in a message."""

    topic_id: bytes
    partitions: list[int]


def of_rows(rows: Iterable[Row]) -> Assignment:
    """Convert rows of a message to an assignment; rows of the same topic are merged."""
    found: dict[bytes, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            before = found.get(row.topic_id)
            here = frozenset(row.partitions)
            found[row.topic_id] = here if before is None else before | here
    return found


def to_rows(assignment: Assignment) -> list[TopicPartitions]:
    """Convert an assignment to rows of a record, in ascending order."""
    return [TopicPartitions(topic_id=one, partitions=sorted(assignment[one])) for one in sorted(assignment)]


def size(assignment: Mapping[Key, frozenset[int]]) -> int:
    """Return the number of partitions."""
    return sum(map(len, assignment.values()))


def each(assignment: Assignment) -> Iterator[tuple[bytes, int]]:
    """Iterate over all partitions, in ascending order."""
    return ((topic_id, index) for topic_id in sorted(assignment) for index in sorted(assignment[topic_id]))


def overlap(one: Mapping[Key, frozenset[int]], other: Mapping[Key, frozenset[int]]) -> bool:
    """Return whether any partition is in both."""
    return any(not partitions.isdisjoint(other.get(topic_id, ())) for topic_id, partitions in one.items())


def within(one: Mapping[Key, frozenset[int]], other: Mapping[Key, frozenset[int]]) -> bool:
    """Return whether all partitions of the first are in the second."""
    return all(partitions <= other.get(topic_id, frozenset()) for topic_id, partitions in one.items())
