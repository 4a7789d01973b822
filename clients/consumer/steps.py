"""What a consumer has to do next: the effects that `core.ConsumerCore` returns.

A step is a piece of news that is missing or an act that is due: something that takes time, or that is the application's
own code. `polling` carries it out and comes back with it (`ConsumerCore.on_step_done`, or `put_off` if it could not be
done now). By then anything may have changed: a step therefore names the beginnings (`PartitionProgress.begun`) that it
was decided on, and what has changed since is decided anew.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.clients.consumer.classic_group_membership import Assigned
from anabranch.clients.consumer.delivery import Boundary
from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.protocol.lineage import Segment
from anabranch.protocol.topic_partition import TopicPartition

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class DeliverRecords:
    """Nothing is left to do before: records may be handed out, in this very moment."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done, and nothing be handed out, before there is news."""


@dataclass(frozen=True, slots=True)
class AskMembership:
    """The member may have been replaced: ask the coordinator, and do nothing in the group's name until it answers."""


class Flushed(NamedTuple):
    """What of one partition a flush is about: the end of a segment, or (None) whatever was read so far."""

    progress: PartitionProgress
    begun: int
    segment: Segment | None
    reached: bool = False
    """Whether its end is known to be reached, and not only may be."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Tell the application `on_partition_key_maybe_revoked`: others may load these keys from now on."""

    rows: tuple[Flushed, ...]

    @property
    def partitions(self) -> Partitions:
        """What the application is told of."""
        return frozenset(row.progress.partition for row in self.rows)


@dataclass(frozen=True, slots=True)
class LearnCommits:
    """Ask how far the group has committed these: of what a producer's transaction commits a consumer is not told."""

    partitions: Partitions


class Reason(enum.Enum):
    """Why offsets are committed."""

    BOUNDARY = "the end of a segment is reached: others wait for it"
    START = "reading begins where the group has no offset: others may wait for just that"
    DUE = "the interval of automatic commits is over"
    DEPARTURE = "partitions are given back, or the group moves keys"


@dataclass(frozen=True, slots=True)
class Commit:
    """Store the audit, then commit these offsets (the next ones to read)."""

    offsets: Mapping[TopicPartition, int]
    reason: Reason
    boundaries: Sequence[Boundary] = ()
    """The boundaries that may be crossed once it is committed."""


@dataclass(frozen=True, slots=True)
class StoreAudit:
    """Store the audit of what was handed out: the partitions leave, and only the application commits."""


@dataclass(frozen=True, slots=True)
class NotifyRevoked:
    """Tell the application `on_partitions_revoked`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class NotifyLost:
    """Tell the application `on_partitions_lost`: the group went on without this member."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class NotifyGone:
    """Tell the application `on_partitions_lost`: a topic was created anew, and these partitions are of the old one."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class NotifyAssigned:
    """Tell the application `on_partitions_assigned`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class NotifyKeysAssigned:
    """Tell the application `on_partition_key_assigned`: the gates of these segments have opened."""

    rows: tuple[tuple[PartitionProgress, Segment], ...]

    @property
    def partitions(self) -> Partitions:
        """What the application is told of."""
        return frozenset(progress.partition for progress, _ in self.rows)


@dataclass(frozen=True, slots=True)
class Join:
    """Join the group, and wait for what it gives: everything was given up."""


@dataclass(frozen=True, slots=True)
class JoinInBackground:
    """Begin to join the group, and read on: what comes of it is news (KIP-429)."""


@dataclass(frozen=True, slots=True)
class AdoptAssignment:
    """Tell the assignor what this member was given, and read that from now on."""

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class FindStartingPositions:
    """Find out where to begin in the partitions that have no position."""


@dataclass(frozen=True, slots=True)
class FindResetPositions:
    """Find out where to go on in partitions whose leaders have nothing at the position."""


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Wait while there is too much that the audit could not send."""


Step = (
    DeliverRecords
    | Wait
    | AskMembership
    | Flush
    | LearnCommits
    | Commit
    | StoreAudit
    | NotifyRevoked
    | NotifyLost
    | NotifyGone
    | NotifyAssigned
    | NotifyKeysAssigned
    | Join
    | JoinInBackground
    | AdoptAssignment
    | FindStartingPositions
    | FindResetPositions
    | MakeRoom
)
