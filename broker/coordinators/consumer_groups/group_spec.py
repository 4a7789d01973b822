"""What an assignor works from: members with their subscriptions and their last target, and what may be assigned.

Members come in the order of their ids, so that a coordinator that takes over computes what its predecessor would have.
Kafka goes through a hash map there: which of two equal members gets an odd partition is nobody's promise.

Source: KIP-848; Kafka's GroupSpec, SubscribedTopicDescriber.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.protocol.values import value


@value(kw_only=True)
class AssignorMember:
    """A member as an assignor sees it."""

    instance_id: str | None = None
    rack_id: str | None = None
    topics: frozenset[bytes] = frozenset()
    """The ids of the topics that it subscribes to and that exist."""
    target: Assignment = field(default_factory=dict)
    """What it was to have last."""


@value(kw_only=True)
class GroupSpec:
    """All that an assignor may go by."""

    members: Mapping[str, AssignorMember]
    """In the order of their ids."""
    partitions: Mapping[bytes, tuple[int, ...]]
    """Topic id -> what may be assigned of it, ascending."""
    parents: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)
    """Topic id -> the partitions that a resize has made -> the one that each split off."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        topics = {member.topics for member in self.members.values()}
        return len(topics) <= 1

    def kept(self, member: AssignorMember) -> Assignment:
        """What of a member's last target it may still have: topics that it subscribes to, partitions that are there."""
        kept = {}
        for topic_id, partitions in member.target.items():
            if topic_id in member.topics:
                there = partitions.intersection(self.partitions.get(topic_id, ()))
                if there:
                    kept[topic_id] = there if len(there) < len(partitions) else partitions
        return kept


def without_members(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Nothing for anybody."""
    return dict.fromkeys(spec.members, NOTHING)
