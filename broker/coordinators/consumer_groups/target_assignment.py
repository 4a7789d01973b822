"""The target assignment of a group: runs the assignor that most members request.

Source: Kafka's TargetAssignmentBuilder, ConsumerGroup.computePreferredServerAssignor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.group_spec import AssignorMember, GroupSpec
from anabranch.broker.coordinators.consumer_groups.member import Member
from anabranch.broker.coordinators.consumer_groups.range_assignor import assign_ranges
from anabranch.broker.coordinators.consumer_groups.subscribed_topics import FindTopic, Topic
from anabranch.broker.coordinators.consumer_groups.uniform_assignor import assign_uniformly

Assignor = Callable[[GroupSpec], Mapping[str, Assignment]]
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}


def preferred_assignor(members: Iterable[Member], known: tuple[str, ...]) -> str:
    """Return the assignor that most members request; the broker's order decides ties and is the default."""
    votes = Counter(member.assignor for member in members if member.assignor in known)
    return max(known, key=lambda name: votes[name])


def compute(
    group: ConsumerGroup, members: Iterable[Member], targets: Mapping[str, Assignment], assignor: str, find: FindTopic
) -> Mapping[str, Assignment]:
    """Compute the new targets of these members, the group's future members, from their previous ones."""
    spec = spec_of(group, members, targets, find)
    return ASSIGNORS[assignor](spec)


def spec_of(
    group: ConsumerGroup, members: Iterable[Member], targets: Mapping[str, Assignment], find: FindTopic
) -> GroupSpec:
    """Build the assignor's input. Members with the same subscription share one set of topics."""
    topics: dict[str, Topic | None] = {}
    ids_of: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}
    seen: dict[str, AssignorMember] = {}
    for member in sorted(members, key=lambda one: one.member_id):
        subscription = (member.topic_names, member.topic_regex)
        if subscription not in ids_of:
            names = group.topics_of(member)
            topics.update((name, find(name)) for name in names - topics.keys())
            ids_of[subscription] = frozenset(topic.topic_id for topic in map(topics.get, names) if topic is not None)
        seen[member.member_id] = AssignorMember(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            topics=ids_of[subscription],
            target=targets.get(member.member_id, NOTHING),
        )
    known = [topic for topic in topics.values() if topic is not None]
    return GroupSpec(
        members=seen,
        partitions={topic.topic_id: topic.partitions for topic in known},
        parents={topic.topic_id: topic.parents for topic in known if topic.parents},
    )
