"""The built-in assignors: Kafka's, and `lineage`.

`range` and `roundrobin` are Kafka's. `lineage` is this project's (KIP-253 section 6, rule R19). It spreads live
partitions and partitions marked for deletion as two lists, so that no member gets drained ones only. A member keeps its
partitions. Where balance allows, a child partition goes to the member that reads its parent, because a hand-off within
one member costs nothing. `cooperative-sticky` is Kafka's on the wire, so leaders of any implementation understand it.
As leader it spreads like `lineage`, and withholds partitions that other members still own.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch.clients.consumer.consumer_partition_assignor import (
    MemberAssignment,
    MemberView,
    PartitionAssignor,
    RebalanceProtocol,
    TopicView,
    topic_views,
    withhold_owned,
)
from anabranch.clients.consumer.even_spread import Spread, last_owners
from anabranch.clients.metadata import ClusterMetadata
from anabranch.protocol.topic_partition import TopicPartition

Assignment = dict[str, list[TopicPartition]]
_generation: Final = struct.Struct(">i")


def assign_range(members: Sequence[MemberView], topics: Mapping[str, TopicView]) -> Assignment:
    """Assign each topic's partitions in consecutive runs; the first members get one more."""
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic in sorted(topics):
        subscribed = sorted(member.member_id for member in members if topic in member.topics)
        if not subscribed:
            continue
        partitions = sorted(topics[topic].partitions)
        each, extra = divmod(len(partitions), len(subscribed))
        start = 0
        for place, member_id in enumerate(subscribed):
            size = each + (place < extra)
            assignment[member_id] += [TopicPartition(topic, index) for index in partitions[start : start + size]]
            start += size
    return assignment


def assign_round_robin(members: Sequence[MemberView], topics: Mapping[str, TopicView]) -> Assignment:
    """Deal all partitions of all topics one by one to the members that subscribe to them."""
    assignment: Assignment = {member.member_id: [] for member in members}
    subscriptions = {member.member_id: set(member.topics) for member in members}
    order = sorted(assignment)
    place = 0
    for topic in sorted(topics):
        for index in sorted(topics[topic].partitions):
            for _ in order:
                member_id = order[place % len(order)]
                place += 1
                if topic in subscriptions[member_id]:
                    assignment[member_id].append(TopicPartition(topic, index))
                    break
    return assignment


def assign_lineage(members: Sequence[MemberView], topics: Mapping[str, TopicView]) -> Assignment:
    """Spread two lists evenly, live and draining; keep owned partitions, and place children near their parents."""
    assignment: Assignment = {member.member_id: [] for member in members}
    owners = last_owners(members)
    for draining in (False, True):
        todo = [
            TopicPartition(name, index)
            for name in sorted(topics)
            for index in sorted(topics[name].partitions)
            if (index in topics[name].draining) == draining
        ]
        spread = Spread(members, todo).run(owners, lambda partition: _relatives(partition, topics[partition.topic]))
        for partition, member_id in spread:
            assignment[member_id].append(partition)
            owners[partition] = member_id
    return assignment


def assign_cooperatively(members: Sequence[MemberView], topics: Mapping[str, TopicView]) -> Assignment:
    """Assign as `lineage`, without partitions that other members have to revoke first."""
    return withhold_owned(members, assign_lineage(members, topics))


def _relatives(partition: TopicPartition, topic: TopicView) -> list[TopicPartition]:
    if topic.lineage is None:
        return []
    sources = defaultdict(int)
    for key_epoch in topic.lineage.key_epochs(partition.partition):
        for source in topic.lineage.predecessors(key_epoch):
            sources[source.partition] = key_epoch.generation
    return [TopicPartition(partition.topic, index) for index in sorted(sources, key=lambda one: (-sources[one], one))]


class FunctionAssignor(PartitionAssignor):
    """An assignor without state."""

    def __init__(
        self, name: str, spread: Callable[[Sequence[MemberView], Mapping[str, TopicView]], Assignment]
    ) -> None:
        self.name = name
        self._spread = spread

    def assign(self, metadata: ClusterMetadata, members: Sequence[MemberView]) -> dict[str, MemberAssignment]:
        """Call the function."""
        spread = self._spread(members, topic_views(metadata, members))
        return {member_id: MemberAssignment(tuple(partitions)) for member_id, partitions in spread.items()}


class CooperativeSticky(FunctionAssignor):
    """Kafka's `cooperative-sticky`: its user data is the generation of the last assignment, for old leaders."""

    protocols = frozenset(RebalanceProtocol)

    def __init__(self) -> None:
        super().__init__("cooperative-sticky", assign_cooperatively)
        self._assigned_in = -1

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """Return the generation: subscriptions before v2 have no field for it."""
        return _generation.pack(self._assigned_in)

    def assign(self, metadata: ClusterMetadata, members: Sequence[MemberView]) -> dict[str, MemberAssignment]:
        """Call the function, with members of older versions."""
        return super().assign(metadata, [_with_generation(member) for member in members])

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        """Remember the generation."""
        self._assigned_in = generation


def _with_generation(member: MemberView) -> MemberView:
    if member.generation >= 0 or member.user_data is None or len(member.user_data) != _generation.size:
        return member
    (generation,) = _generation.unpack(member.user_data)
    return replace(member, generation=generation)


ASSIGNORS: Final[Mapping[str, Callable[[], PartitionAssignor]]] = {
    "lineage": lambda: FunctionAssignor("lineage", assign_lineage),
    "range": lambda: FunctionAssignor("range", assign_range),
    "roundrobin": lambda: FunctionAssignor("roundrobin", assign_round_robin),
    "cooperative-sticky": CooperativeSticky,
}
"""By protocol name, in the order in which members offer them."""


def make_assignors(strategy: str | Sequence[str | PartitionAssignor]) -> tuple[PartitionAssignor, ...]:
    """Build a consumer's assignors, in order of preference. Raises `ValueError` for an invalid strategy."""
    chosen = [one.strip() for one in strategy.split(",")] if isinstance(strategy, str) else list(strategy)
    if not chosen:
        raise ValueError(f"partition_assignment_strategy is empty; the assignors are {', '.join(ASSIGNORS)}")
    made: list[PartitionAssignor] = []
    for one in chosen:
        if isinstance(one, str) and one not in ASSIGNORS:
            raise ValueError(f"unknown assignor {one!r}: there are {', '.join(ASSIGNORS)}, or your own objects")
        made.append(ASSIGNORS[one]() if isinstance(one, str) else one)
    if len({one.name for one in made}) < len(made):
        raise ValueError("two assignors of partition_assignment_strategy have the same name")
    return tuple(made)
