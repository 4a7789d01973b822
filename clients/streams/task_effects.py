"""What `TaskMachine` asks its shell to do: plain values, carried out by `task_runner` and `committer`.

A list of effects is carried out in its order and without waiting in between, so that the state which the machine
decided on still holds when the last of them is done. Only `Commit` takes time; while it does, `TaskMachine.committing`
keeps everything else away from the tasks that are part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.tasks import State, Task
from anabranch.protocol.lineage import Lineage, Segment
from anabranch.protocol.topic_partition import TopicPartition


class Open(NamedTuple):
    """Open the stores of a task on disk, and have a task on them that begins in this state."""

    task_id: TaskId
    state: State


class Close(NamedTuple):
    """Close the stores of a task; they stay on disk as of the last commit."""

    task: Task


class Pause(NamedTuple):
    """Have the consumer hand out no records of these partitions."""

    partitions: Sequence[TopicPartition]


class Resume(NamedTuple):
    """Have the consumer hand out records of these partitions again."""

    partitions: Sequence[TopicPartition]


class Follow(NamedTuple):
    """Have the changelog reader read exactly what `TaskMachine.to_follow` says from now on."""


class Seek(NamedTuple):
    """Have the changelog reader go on at another offset of a changelog."""

    changelog: TopicPartition
    offset: int


class Rejoin(NamedTuple):
    """Have the group assign its tasks anew: copies that are complete now allow a better assignment."""


Effect = Open | Close | Pause | Resume | Follow | Seek | Rejoin


@dataclass(frozen=True, slots=True)
class Departure:
    """A hand-over that is due: the keys that leave a task where its partition's segment `opened` begins."""

    task: Task
    lineage: Lineage
    opened: Segment


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything that becomes true together, or not at all."""

    tasks: Sequence[Task]
    """The tasks whose changes go to their changelogs."""
    offsets: Mapping[TopicPartition, int]
    """The next offset to read of each input partition."""
    departures: Sequence[Departure]
    member: ConsumerGroupMetadata | None = None
    """The member and generation of the group that this was decided for, if it may count for no other: the group is
    asked when everything else is stored. None lets it count for this instance's generation at the end of the commit."""
