"""What an assignor is: which member reads which partition, decided by the leader of a group for all its members.

A consumer offers the assignors of its `partition_assignment_strategy` in their order, and the coordinator chooses one
that all members have. Each is one object per consumer, and may remember things between rebalances:

    join    `subscription_user_data`: bytes for the leader, asked for at every JoinGroup
    leader  `assign`: from the subscriptions of all members, what each is to read; may be a coroutine function, and has
            the rebalance timeout to create topics or look up offsets
    sync    `on_assignment`: what this member was given, after the listener heard of partitions that were revoked and
            before it hears of new ones; the answer says when to join again: REJOIN_NOW, a time, or None

Eager members give everything up before they join. Cooperative ones (KIP-429) go on reading what they have, and give up
what the new assignment takes from them; then they join again at once, so that others get it. A consumer is cooperative
if all its assignors can be. The duty of an assignor that can is to give no member what another still owns:
`withhold_owned` takes that out of an assignment, and a leader refuses to send one that breaks the rule. `rejoin` at any
other moment is `Consumer.enforce_rebalance`.

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
    """What a member does with its partitions while the group rebalances."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member as the leader sees it: the subscription that came with its join."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    """What it has and keeps reading; of an eager member, what it had."""
    user_data: bytes | None = None
    generation: int = -1
    """The generation in which it was given what it owns."""
    instance_id: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What one member is given."""

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
        """Bytes that this member sends to the leader besides topics, owned partitions and generation; None for none."""
        return None

    @abstractmethod
    def assign(
        self, metadata: ClusterMetadata, members: Sequence[MemberView]
    ) -> Mapping[str, MemberAssignment] | Awaitable[Mapping[str, MemberAssignment]]:
        """Assign the partitions. Returns member id -> assignment. `metadata` is fresh and has the topics of all."""

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> int | None:
        """Take what the leader sent; REJOIN_NOW, the time (ms, by the consumer's clock) to join again, or None."""
        return None


def topic_views(metadata: ClusterMetadata, members: Sequence[MemberView]) -> dict[str, TopicView]:
    """The topics that the members want and that exist."""
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
    """What an assignment gives to one member while another reads it: partition -> the member that is to get it."""
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
    """The assignment without what others have to give up first: they join again when they have (KIP-429)."""
    moving = still_owned(members, assignment)
    return {member_id: [one for one in partitions if one not in moving] for member_id, partitions in assignment.items()}
