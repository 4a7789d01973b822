"""The steps that `core.ConsumerCore` returns.

A step fetches missing information or takes an action: it takes time, or is the application's own code. `poll_loop`
executes it and reports the result (`ConsumerCore.on_step_done`, or `postpone` if it failed). By then anything may have
changed: a step therefore carries the begin numbers (`PartitionProgress.begin_number`) at its decision, and what has
changed since is decided again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.clients.consumer.classic_group_membership import Assigned
from anabranch.clients.consumer.delivery import Boundary
from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.topic_partition import TopicPartition

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class DeliverRecords:
    """No other step is due: records may be delivered until the next await."""


@dataclass(frozen=True, slots=True)
class Wait:
    """No step is possible, and no record deliverable, before there is news."""


@dataclass(frozen=True, slots=True)
class AskMembership:
    """The member may have been replaced: ask the coordinator, and do not act for the group until it answers."""


class Flushed(NamedTuple):
    """One partition of a flush: the end of a key epoch, or (None) all records read so far."""

    progress: PartitionProgress
    begin_number: int
    key_epoch: KeyEpoch | None
    reached: bool = False
    """Whether its end is known to be reached, rather than possibly reached."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Tell the application `on_partition_key_maybe_revoked`: others may load these keys from now on."""

    rows: tuple[Flushed, ...]

    @property
    def partitions(self) -> Partitions:
        """The partitions to pass to the callback."""
        return frozenset(row.progress.partition for row in self.rows)


@dataclass(frozen=True, slots=True)
class LearnCommits:
    """Fetch the group's committed offsets of these: a consumer is not notified of transactional commits."""

    partitions: Partitions


class Reason(enum.Enum):
    """The reason for a commit."""

    BOUNDARY = "the end of a key epoch is reached, which may open gates"
    START = "reading begins without a committed offset, which may open gates"
    DUE = "the interval of automatic commits is over"
    DEPARTURE = "partitions are revoked, or a resize moves keys"


@dataclass(frozen=True, slots=True)
class Commit:
    """Store the audit, then commit these offsets (the next ones to read)."""

    offsets: Mapping[TopicPartition, int]
    reason: Reason
    boundaries: Sequence[Boundary] = ()
    """The boundaries that may be crossed once it is committed."""


@dataclass(frozen=True, slots=True)
class StoreAudit:
    """Store the audit of delivered records: the partitions are revoked, and only the application commits."""


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
    """Call the application's `on_partitions_lost`: these partitions belong to the old one of a recreated topic."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class NotifyAssigned:
    """Tell the application `on_partitions_assigned`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class NotifyKeysAssigned:
    """Tell the application `on_partition_key_assigned`: the gates of these key epochs have opened."""

    rows: tuple[tuple[PartitionProgress, KeyEpoch], ...]

    @property
    def partitions(self) -> Partitions:
        """The partitions to pass to the callback."""
        return frozenset(progress.partition for progress, _ in self.rows)


@dataclass(frozen=True, slots=True)
class Join:
    """Join the group, and wait for the assignment; everything is revoked already."""


@dataclass(frozen=True, slots=True)
class JoinInBackground:
    """Start a join and keep reading; its result is news (KIP-429)."""


@dataclass(frozen=True, slots=True)
class AdoptAssignment:
    """Give the assignment to the assignor, and read it from now on."""

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class FindStartingPositions:
    """Look up starting offsets of partitions without a position."""


@dataclass(frozen=True, slots=True)
class FindResetPositions:
    """Look up offsets to continue at, where positions are out of the leader's range."""


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Wait while the audit has too many unsent events."""


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
