"""The state of one KIP-848 group, built from the records of the journal.

`apply` applies one record, and nothing else changes the state, except for the timers. A coordinator applies the records
of its decisions once they are in the log; a new coordinator applies them as it reads the log. So both have the same
state.

    Empty        no members
    Assigning    the target was computed for an older epoch of the group
    Reconciling  some member has not reached its target
    Stable       every member has its target
    Dead         deleted, or coordinated by another broker

Invariant: `holder` returns the one member that has a partition, assigned or not revoked yet. Source: KIP-848; Kafka's
ConsumerGroup, ModernGroup, and the replay methods of GroupMetadataManager.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from anabranch.broker.coordinators.consumer_groups import assignment
from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.broker.coordinators.consumer_groups.member import Member
from anabranch.broker.coordinators.consumer_groups.regular_expressions import ResolvedRegularExpression
from anabranch.broker.coordinators.consumer_groups.timers import Timers
from anabranch.protocol import consumer_group_records as records
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record
from anabranch.protocol.values import slotted

NO_EPOCH: Final = -1


class ConsumerGroupState(enum.Enum):
    """The state of a KIP-848 group; the value is the name on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@slotted(eq=False)
class ConsumerGroup:
    """One KIP-848 group."""

    group_id: str
    epoch: int = 0
    """0: the group has no record in the journal."""
    assignment_epoch: int = 0
    """The group epoch for which `targets` was computed."""
    metadata_hash: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    targets: dict[str, Assignment] = field(default_factory=dict)
    """Member id -> its target assignment."""
    regexes: dict[str, ResolvedRegularExpression] = field(default_factory=dict)
    subscribers: Counter[str] = field(default_factory=Counter)
    """Topic -> the number of members that subscribe to it by name."""
    regex_subscribers: Counter[str] = field(default_factory=Counter)
    """Regular expression -> the number of members that subscribe by it."""
    timers: Timers = field(default_factory=Timers)
    metadata_seen: Any = None
    """The metadata image at the last comparison of the hash."""
    newest_topic_seen: int = -1
    """`TopicsView.newest_topic` at the last resolution of expressions; -1: none by this coordinator."""
    has_partition_metadata: bool = False
    """Whether a partition metadata record of Kafka 4.0 has to be deleted."""
    dead: bool = False
    _holders: dict[bytes, dict[int, str]] = field(default_factory=dict)
    _without_gates: set[str] = field(default_factory=set)
    """The ids of members that hold no gates."""

    # --- queries -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """The current state, derived from members and epochs."""
        if self.dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def protocol_type(self) -> str:
        """The protocol type, as in classic groups of consumers."""
        return "consumer"

    def next_deadline(self) -> int | None:
        """Return the earliest deadline of a member's timer."""
        return self.timers.first()

    def member(self, member_id: str) -> Member:
        """Return a member. Raises UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the member with an instance id, if any."""
        return None if instance_id is None else self.members.get(self.static.get(instance_id, ""))

    def holder(self, topic_id: bytes, index: int) -> str | None:
        """Return the member that has a partition, assigned or not revoked yet."""
        return self._holders.get(topic_id, {}).get(index)

    def is_free(self, topic_id: bytes, index: int) -> bool:
        """Return whether no member has a partition."""
        return index not in self._holders.get(topic_id, NOTHING)

    def free_of(self, topic_id: bytes, partitions: frozenset[int]) -> frozenset[int]:
        """Return those of a topic's partitions that no member has."""
        held = self._holders.get(topic_id)
        return partitions.difference(held) if held else partitions

    def target(self, member_id: str, instance_id: str | None = None) -> Assignment:
        """Return a member's target assignment; a replacing static member gets the target of the replaced one."""
        if instance_id is not None:
            member_id = self.static.get(instance_id, member_id)
        return self.targets.get(member_id, NOTHING)

    @property
    def classic_members(self) -> list[Member]:
        """The members that use the classic protocol."""
        return [member for member in self.members.values() if member.classic is not None]

    def gated_by_broker(self, but: str = "") -> bool:
        """Return whether some member except `but` holds no gates, so that partitions have to be withheld."""
        return len(self._without_gates) > (but in self._without_gates)

    def topics_of(self, member: Member) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name and by its resolved expression."""
        resolved = self.regexes.get(member.topic_regex) if member.topic_regex else None
        names = frozenset(member.topic_names)
        return names if resolved is None else names | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any member subscribes to."""
        return frozenset(self.subscribers).union(*(one.topics for one in self.regexes.values()))

    def describe(self) -> str:
        """Format the group for logs, on one line."""
        return (
            f"group {self.group_id} {self.state.value} epoch={self.epoch} assignment={self.assignment_epoch} "
            f"members={ {one.member_id: one.epoch for one in self.members.values()} }"
        )

    # --- records -------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Apply one journal record."""
        key, content = record
        _APPLY[type(key)](self, key, content)

    def _apply_group(self, key: records.ConsumerGroupMetadataKey, content: Any) -> None:
        self.epoch = 0 if content is None else content.epoch
        self.metadata_hash = 0 if content is None else content.metadata_hash

    def _apply_partition_metadata(self, key: Any, content: Any) -> None:
        self.has_partition_metadata = content is not None

    def _apply_metadata(self, key: records.ConsumerGroupMemberMetadataKey, content: Any) -> None:
        before = self.members.get(key.member_id)
        if content is not None:
            self._replace((before or Member(member_id=key.member_id)).with_metadata(content))
        elif before is not None:
            self._forget(before)

    def _apply_current(self, key: records.ConsumerGroupCurrentMemberAssignmentKey, content: Any) -> None:
        before = self.members.get(key.member_id)
        if content is not None or before is not None:
            member = (before or Member(member_id=key.member_id)).with_current(content)
            self._replace(member)
            self._hold(before, member)

    def _apply_target(self, key: records.ConsumerGroupTargetAssignmentMemberKey, content: Any) -> None:
        if content is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = assignment.of_rows(content.topic_partitions)

    def _apply_assignment_epoch(self, key: Any, content: Any) -> None:
        self.assignment_epoch = NO_EPOCH if content is None else content.assignment_epoch

    def _apply_regex(self, key: records.ConsumerGroupRegularExpressionKey, content: Any) -> None:
        if content is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            resolved = ResolvedRegularExpression(frozenset(content.topics), content.version, content.timestamp)
            self.regexes[key.regular_expression] = resolved

    def _replace(self, member: Member) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is None or before.topic_names != member.topic_names or before.topic_regex != member.topic_regex:
            self._count(before, -1)
            self._count(member, 1)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if member.holds_gates:
            self._without_gates.discard(member.member_id)
        else:
            self._without_gates.add(member.member_id)

    def _hold(self, before: Member | None, member: Member) -> None:
        """Note the holder of a member's partitions, also of those that it had before.

        In a log that is compacted while it is loaded, another member may have had them in between.
        """
        self._release(before, but=member)
        for partitions in (member.assigned, member.revoking):
            for topic_id, indexes in partitions.items():
                self._holders.setdefault(topic_id, {}).update(dict.fromkeys(indexes, member.member_id))

    def _forget(self, member: Member) -> None:
        del self.members[member.member_id]
        self._count(member, -1)
        self._release(member)
        self._without_gates.discard(member.member_id)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        self.timers.forget(member.member_id)

    def _count(self, member: Member | None, by: int) -> None:
        if member is None:
            return
        for counts, names in (
            (self.subscribers, member.topic_names),
            (self.regex_subscribers, (member.topic_regex,) if member.topic_regex else ()),
        ):
            for name in names:
                counts[name] += by
                if not counts[name]:
                    del counts[name]

    def _release(self, member: Member | None, but: Member | None = None) -> None:
        """Remove a member as the holder of its partitions, except for those that `but`, its successor, has."""
        if member is None:
            return
        for partitions in (member.assigned, member.revoking):
            for topic_id, indexes in partitions.items():
                holders = self._holders.get(topic_id)
                if holders is None:
                    continue
                if but is not None:
                    indexes -= but.assigned.get(topic_id, frozenset()) | but.revoking.get(topic_id, frozenset())
                for index in indexes:
                    if holders.get(index) == member.member_id:
                        del holders[index]
                if not holders:
                    del self._holders[topic_id]


_APPLY: Final[Mapping[type[Any], Callable[[ConsumerGroup, Any, Any], None]]] = {
    records.ConsumerGroupMetadataKey: ConsumerGroup._apply_group,
    records.ConsumerGroupPartitionMetadataKey: ConsumerGroup._apply_partition_metadata,
    records.ConsumerGroupMemberMetadataKey: ConsumerGroup._apply_metadata,
    records.ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._apply_current,
    records.ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._apply_target,
    records.ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._apply_assignment_epoch,
    records.ConsumerGroupRegularExpressionKey: ConsumerGroup._apply_regex,
}
