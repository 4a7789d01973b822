"""The effects of `TaskMachine`: plain values, executed by `task_runner` and `committer`.

A list of effects is executed in order and without an await in between, so the state on which the machine decided still
holds for the last of them. Only `Commit` takes time; meanwhile `TaskMachine.committing` protects its tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.topic_partition import TopicPartition


class Open(NamedTuple):
    """Open the stores of a task on disk, and create the task in this state."""

    task_id: TaskId
    state: State


class Close(NamedTuple):
    """Close the stores of a task; they stay on disk as of the last commit."""

    task: Task


class Pause(NamedTuple):
    """Pause these partitions in the consumer."""

    partitions: Sequence[TopicPartition]


class Resume(NamedTuple):
    """Resume these partitions in the consumer."""

    partitions: Sequence[TopicPartition]


class Follow(NamedTuple):
    """Let the changelog reader follow exactly `TaskMachine.to_follow` from now on."""


class Seek(NamedTuple):
    """Let the changelog reader continue at another offset of a changelog."""

    changelog: TopicPartition
    offset: int


class Rejoin(NamedTuple):
    """Request a rebalance: complete copies allow a better assignment."""


Effect = Open | Close | Pause | Resume | Follow | Seek | Rejoin


@dataclass(frozen=True, slots=True)
class Departure:
    """A due hand-over: the keys that leave a task where its partition's key epoch `opened` begins."""

    task: Task
    lineage: Lineage
    opened: KeyEpoch


@dataclass(frozen=True, slots=True)
class Commit:
    """An atomic commit."""

    tasks: Sequence[Task]
    """The tasks whose changes go to their changelogs."""
    offsets: Mapping[TopicPartition, int]
    """The next offset to read of each input partition."""
    departures: Sequence[Departure]
    member: ConsumerGroupMetadata | None = None
    """The member and generation of this decision, if the commit is valid for no other: the group confirms it after
    everything else is stored. None: the commit is valid for the instance's generation at its end."""
