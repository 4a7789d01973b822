"""Who reads which partition: pure assignors, run by the leader of a group.

`range` and `roundrobin` are Kafka's. `lineage` is ours (KIP-253 section 6, rule R19): live partitions and partitions
marked for deletion are spread as two lists, so that nobody ends up with drained ones only; a member keeps what it had;
and a partition goes, where balance allows, to the member that reads the partition its keys come from, because a
hand-off within one member costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.lineage import Lineage
from protocol.topic_partition import TopicPartition

Assignment = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member as the leader sees it."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as the leader sees it: every partition that still holds records, and which of them are draining."""

    name: str
    partitions: tuple[int, ...]
    draining: frozenset[int] = field(default_factory=frozenset)
    lineage: Lineage | None = None
    topic_id: bytes = b""


Assignor = Callable[[Sequence[MemberView], Mapping[str, TopicView]], Assignment]


def assign_range(members: Sequence[MemberView], topics: Mapping[str, TopicView]) -> Assignment:
    """Each topic's partitions in consecutive runs, the first members getting one more."""
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
    """All partitions of all topics dealt out one by one among the members that want them."""
    assignment: Assignment = {member.member_id: [] for member in members}
    wanted = {member.member_id: set(member.topics) for member in members}
    order = sorted(assignment)
    place = 0
    for topic in sorted(topics):
        for index in sorted(topics[topic].partitions):
            for _ in order:
                member_id = order[place % len(order)]
                place += 1
                if topic in wanted[member_id]:
                    assignment[member_id].append(TopicPartition(topic, index))
                    break
    return assignment


def assign_lineage(members: Sequence[MemberView], topics: Mapping[str, TopicView]) -> Assignment:
    """Two balanced lists, live and draining; within each, keep what one had, and children near their parents."""
    assignment: Assignment = {member.member_id: [] for member in members}
    owner = {partition: member.member_id for member in members for partition in member.owned}
    for draining in (False, True):
        share = _Share(members)
        todo = [
            TopicPartition(name, index)
            for name in sorted(topics)
            for index in sorted(topics[name].partitions)
            if (index in topics[name].draining) == draining
        ]
        for partition, member_id in share.spread(todo, owner, topics):
            assignment[member_id].append(partition)
            owner[partition] = member_id
    return assignment


class _Share:
    """Fills members up to an equal share of one list of partitions."""

    def __init__(self, members: Sequence[MemberView]) -> None:
        self._wanted = {member.member_id: frozenset(member.topics) for member in members}
        self._load: dict[str, int] = {member.member_id: 0 for member in sorted(members, key=lambda one: one.member_id)}

    def spread(
        self, todo: Sequence[TopicPartition], owner: Mapping[TopicPartition, str], topics: Mapping[str, TopicView]
    ) -> list[tuple[TopicPartition, str]]:
        """(partition, member) for every partition that somebody wants."""
        each, extra = divmod(len(todo), max(len(self._load), 1))
        given: list[tuple[TopicPartition, str]] = []
        left: list[TopicPartition] = []
        for partition in todo:
            keeper = owner.get(partition)
            if keeper is not None and self._has_room(keeper, partition, each, extra):
                given.append((partition, self._give(keeper)))
            else:
                left.append(partition)
        owner_now = {**owner, **dict(given)}
        for partition in left:
            relatives = [owner_now.get(one) for one in _relatives(partition, topics[partition.topic])]
            near = next((one for one in relatives if one and self._has_room(one, partition, each, extra)), None)
            member_id = near or self._least_loaded(partition)
            if member_id is not None:
                given.append((partition, self._give(member_id)))
                owner_now[partition] = member_id
        return given

    def _has_room(self, member_id: str, partition: TopicPartition, each: int, extra: int) -> bool:
        if partition.topic not in self._wanted.get(member_id, ()):
            return False
        load = self._load[member_id]
        full_members = sum(1 for other in self._load.values() if other > each)
        return load < each or (load == each and full_members < extra)

    def _least_loaded(self, partition: TopicPartition) -> str | None:
        candidates = [member_id for member_id in self._load if partition.topic in self._wanted[member_id]]
        return min(candidates, key=lambda member_id: self._load[member_id], default=None)

    def _give(self, member_id: str) -> str:
        self._load[member_id] += 1
        return member_id


def _relatives(partition: TopicPartition, topic: TopicView) -> list[TopicPartition]:
    """The partitions that hand keys to this one, newest first."""
    if topic.lineage is None:
        return []
    sources = defaultdict(int)
    for segment in topic.lineage.segments(partition.partition):
        for source in topic.lineage.predecessors(segment):
            sources[source.partition] = segment.generation
    return [TopicPartition(partition.topic, index) for index in sorted(sources, key=lambda one: (-sources[one], one))]


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "lineage": assign_lineage,
    "range": assign_range,
    "roundrobin": assign_round_robin,
}
"""By protocol name, in the order in which members offer them."""
