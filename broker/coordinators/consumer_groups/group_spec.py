"""The input of an assignor: members with their subscriptions and last targets, and the assignable partitions.

Members are ordered by id, so that a new coordinator computes the same targets as the previous one. Kafka iterates over
a hash map: which of two equal members gets an odd partition is unspecified there.

Source: KIP-848; Kafka's GroupSpec, SubscribedTopicDescriber.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.protocol.values import value


@value(kw_only=True)
class AssignorMember:
    """A member in the input of an assignor."""

    instance_id: str | None = None
    rack_id: str | None = None
    topics: frozenset[bytes] = frozenset()
    """The ids of the existing topics that it subscribes to."""
    target: Assignment = field(default_factory=dict)
    """Its last target assignment."""


@value(kw_only=True)
class GroupSpec:
    """The input of an assignor."""

    members: Mapping[str, AssignorMember]
    """In the order of their ids."""
    partitions: Mapping[bytes, tuple[int, ...]]
    """Topic id -> the assignable partitions, ascending."""
    parents: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)
    """Topic id -> child partition -> its parent."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        topics = {member.topics for member in self.members.values()}
        return len(topics) <= 1

    def retained_assignment(self, member: AssignorMember) -> Assignment:
        """Return the part of a member's last target that it may keep: subscribed topics, assignable partitions."""
        kept = {}
        for topic_id, partitions in member.target.items():
            if topic_id in member.topics:
                there = partitions.intersection(self.partitions.get(topic_id, ()))
                if there:
                    kept[topic_id] = there if len(there) < len(partitions) else partitions
        return kept


def without_members(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Return an empty assignment for every member."""
    return dict.fromkeys(spec.members, NOTHING)
