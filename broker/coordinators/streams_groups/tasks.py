"""Tasks of an application of Kafka Streams: partitions of its subtopologies, each in a role.

Active tasks process, standbys keep a copy of their state, warm-ups build one up before they take a task over; this
broker deals no warm-ups, as Kafka's of 4.2 does not. All that a member has is one mapping, as with partitions of topics
(`consumer_groups.assignment`), so that what compares and reconciles those does the same with tasks.
Source: KIP-1071; Kafka's TasksTuple and TasksTupleWithEpochs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from anabranch.protocol import streams_group_records as records


class Role(enum.Enum):
    """What a member does with a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


ACTIVE, STANDBY, WARMUP = Role
Where = tuple[Role, str]
"""A role and a subtopology."""
Tasks = Mapping[Where, frozenset[int]]
NO_TASKS: Final[Tasks] = {}
Since = Mapping[tuple[str, int], int]
"""(subtopology, partition) of an active task -> the epoch in which its member got it."""


class Row(Protocol):
    """A subtopology with partitions, as any message has it."""

    subtopology_id: str
    partitions: list[int]


def of_rows(active: Iterable[Row], standby: Iterable[Row], warmup: Iterable[Row]) -> Tasks:
    """What a message lists; a subtopology that it lists twice is one."""
    found: dict[Where, frozenset[int]] = {}
    for role, rows in ((ACTIVE, active), (STANDBY, standby), (WARMUP, warmup)):
        for row in rows:
            if row.partitions:
                where = role, row.subtopology_id
                found[where] = found.get(where, frozenset()) | frozenset(row.partitions)
    return found


def in_role(tasks: Tasks, role: Role) -> list[tuple[str, list[int]]]:
    """(subtopology, partitions) of one role, in ascending order."""
    return [(name, sorted(tasks[one, name])) for one, name in sorted(tasks, key=lambda key: key[1]) if one is role]


def each(tasks: Tasks) -> Iterator[tuple[Role, str, int]]:
    """Every task, in no order."""
    return ((role, name, index) for (role, name), indexes in tasks.items() for index in indexes)


def to_rows(tasks: Tasks, role: Role, since: Since | None = None) -> list[records.TaskIds]:
    """The tasks of one role for a record; with the epochs in which they were got, if these are given."""
    return [
        records.TaskIds(
            subtopology_id=name,
            partitions=indexes,
            assignment_epochs=None if since is None else [since.get((name, index), 0) for index in indexes],
        )
        for name, indexes in in_role(tasks, role)
    ]


def since_of(*lists: Iterable[records.TaskIds]) -> Since:
    """The epochs that the rows of a record have."""
    return {
        (row.subtopology_id, index): epoch
        for rows in lists
        for row in rows
        for index, epoch in zip(row.partitions, row.assignment_epochs or (), strict=False)
    }
