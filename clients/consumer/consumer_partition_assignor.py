"""The assignor interface: the group's leader uses it to assign partitions to all members.

A consumer offers the assignors of its `partition_assignment_strategy` in their order, and the coordinator chooses one
that all members have. Each is one object per consumer, and may keep state between rebalances:

    join    `subscription_user_data`: bytes for the leader, asked for at every JoinGroup
    leader  `assign`: returns the assignment from the subscriptions of all members; may be a coroutine function, and has
            the rebalance timeout to create topics or look up offsets
    sync    `on_assignment`: receives this member's assignment, after the listener's revocations and before its new
            partitions; returns when to rejoin: REJOIN_NOW, a time, or None

Eager members revoke everything before they join. Cooperative ones (KIP-429) keep reading, and revoke what the new
assignment takes from them; then they rejoin at once, so that others get it. A consumer is cooperative if all its
assignors are. A cooperative assignor must assign no partition that another member still owns: `withhold_owned` removes
those from an assignment, and a leader refuses to send one that breaks the rule. `Consumer.enforce_rebalance` requests a
rebalance at any other time.

Source: Kafka's ConsumerPartitionAssignor; KIP-429.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.clients.metadata import ClusterMetadata
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition

REJOIN_NOW: Final = 0
"""From `on_assignment`: join again at once."""


class RebalanceProtocol(enum.IntEnum):
    """Whether a member keeps its partitions during a rebalance."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member as the leader sees it: the subscription from its JoinGroup."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    """Partitions that the member keeps reading; for an eager member, those that it had."""
    user_data: bytes | None = None
    generation: int = -1
    """The generation in which the member was assigned its owned partitions."""
    instance_id: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The assignment of one member."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as an assignor sees it: every partition that still holds records, and which of them are draining."""

    name: str
    partitions: tuple[int, ...]
    draining: frozenset[int] = field(default_factory=frozenset)
    lineage: Lineage | None = None
    topic_id: bytes = b""


class PartitionAssignor(ABC):
    """The base of assignors, run by the group's leader. Only `assign` may wait, as a coroutine function."""

    name: str
    """The assignor's name in JoinGroup."""
    protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.EAGER})

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return bytes to send to the leader besides topics, owned partitions and generation; None for none."""
        return None

    @abstractmethod
    def assign(
        self, metadata: ClusterMetadata, members: Sequence[MemberView]
    ) -> Mapping[str, MemberAssignment] | Awaitable[Mapping[str, MemberAssignment]]:
        """Assign the partitions. Returns member id -> assignment. `metadata` is current, with all members' topics."""

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> int | None:
        """Handle this member's assignment; returns REJOIN_NOW, the time (ms, consumer's clock) to rejoin, or None."""
        return None


def topic_views(metadata: ClusterMetadata, members: Sequence[MemberView]) -> dict[str, TopicView]:
    """Return the existing topics that members subscribe to."""
    return {
        name: TopicView(
            name,
            tuple(sorted(topic.partitions)),
            frozenset(index for index, one in topic.partitions.items() if one.marked_for_deletion),
            topic.lineage,
            topic.topic_id,
        )
        for name in sorted({topic for member in members for topic in member.topics})
        if (topic := metadata.topics.get(name)) is not None
    }


def still_owned(
    members: Sequence[MemberView], assignment: Mapping[str, Collection[TopicPartition]]
) -> dict[TopicPartition, str]:
    """Return partitions assigned to one member while another owns them: partition -> the new member."""
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            owners.setdefault(partition, set()).add(member.member_id)
    return {
        partition: member_id
        for member_id, partitions in assignment.items()
        for partition in partitions
        if partition in owners and member_id not in owners[partition]
    }


def withhold_owned(
    members: Sequence[MemberView], assignment: Mapping[str, Sequence[TopicPartition]]
) -> dict[str, list[TopicPartition]]:
    """Remove partitions that others have to revoke first: they rejoin afterwards (KIP-429)."""
    moving = still_owned(members, assignment)
    return {member_id: [one for one in partitions if one not in moving] for member_id, partitions in assignment.items()}
