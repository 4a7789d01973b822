"""The tasks of a streams application: partitions of its subtopologies, each with a role.

Active tasks process, standbys copy their state, and warm-ups build up state before they take a task over. This broker
assigns no warm-ups, as Kafka 4.2 does not. A member's tasks are one mapping, like partitions of topics
(`consumer_groups.assignment`), so the same functions compare and reconcile both. Source: KIP-1071; Kafka's TasksTuple
and TasksTupleWithEpochs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from anabranch.protocol import streams_group_records as records


class Role(enum.Enum):
    """The role in which a member has a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


ACTIVE, STANDBY, WARMUP = Role
Where = tuple[Role, str]
Tasks = Mapping[Where, frozenset[int]]
NO_TASKS: Final[Tasks] = {}
Since = Mapping[tuple[str, int], int]
"""(subtopology, partition) of an active task -> the epoch in which its member got it."""


class Row(Protocol):
    """A subtopology with partitions in a message."""

    subtopology_id: str
    partitions: list[int]


def of_rows(active: Iterable[Row], standby: Iterable[Row], warmup: Iterable[Row]) -> Tasks:
    """Convert rows of a message to tasks; rows of the same subtopology are merged."""
    found: dict[Where, frozenset[int]] = {}
    for role, rows in ((ACTIVE, active), (STANDBY, standby), (WARMUP, warmup)):
        for row in rows:
            if row.partitions:
                where = role, row.subtopology_id
                found[where] = found.get(where, frozenset()) | frozenset(row.partitions)
    return found


def in_role(tasks: Tasks, role: Role) -> list[tuple[str, list[int]]]:
    """Return (subtopology, partitions) of one role, in ascending order."""
    return [(name, sorted(tasks[one, name])) for one, name in sorted(tasks, key=lambda key: key[1]) if one is role]


def each(tasks: Tasks) -> Iterator[tuple[Role, str, int]]:
    """Iterate over all tasks, in no particular order."""
    return ((role, name, index) for (role, name), indexes in tasks.items() for index in indexes)


def to_rows(tasks: Tasks, role: Role, since: Since | None = None) -> list[records.TaskIds]:
    """Convert the tasks of one role to rows of a record, with their epochs if given."""
    return [
        records.TaskIds(
            subtopology_id=name,
            partitions=indexes,
            assignment_epochs=None if since is None else [since.get((name, index), 0) for index in indexes],
        )
        for name, indexes in in_role(tasks, role)
    ]


def since_of(*lists: Iterable[records.TaskIds]) -> Since:
    """Return the epochs of tasks in the rows of a record."""
    return {
        (row.subtopology_id, index): epoch
        for rows in lists
        for row in rows
        for index, epoch in zip(row.partitions, row.assignment_epochs or (), strict=False)
    }
