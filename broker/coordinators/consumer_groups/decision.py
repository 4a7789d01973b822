"""A decision about a KIP-848 group: the records to write, and the callbacks to run once they are in the log.

A decision changes nothing by itself. Its records are written as one batch. When they are in the log the group applies
them and its timers are set; the response waits until they are replicated. If the log rejects them, nothing changes.

The methods are the steps of every member request: its metadata, the group epoch, the target assignment, and the
member's reconciliation. Source: Kafka's GroupMetadataManager of 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from anabranch.broker.coordinators.consumer_groups import assignment, target_assignment
from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import UNREVOKED, Member
from anabranch.broker.coordinators.consumer_groups.reconciliation import FreeOf, reconcile
from anabranch.broker.coordinators.consumer_groups.regular_expressions import ResolvedRegularExpression
from anabranch.broker.coordinators.consumer_groups.subscribed_topics import existing, metadata_hash
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.consumer_groups.topics_view import NO_TOPICS, TopicsView
from anabranch.protocol import consumer_group_records as records
from anabranch.protocol.group_records import Record
from anabranch.protocol.internal_topics import GroupMetadataValue
from anabranch.protocol.values import slotted


@slotted
class Decision:
    """A decision about one group at one time."""

    group: ConsumerGroup
    topics: TopicsView
    limits: ConsumerGroupLimits
    now_ms: int
    records: list[Record] = field(default_factory=list)
    then: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks that run when the records are in the log: set timers, note which metadata was read."""
    answer: Any = None
    becomes: GroupMetadataValue | None = None
    """The classic group that replaces this one."""
    resolve: frozenset[str] = frozenset()
    """Regular expressions to resolve now."""
    has_read_topics: bool = False
    """Whether the targets in force after it belong to the topics as they are now."""

    @classmethod
    def about(cls, group: ConsumerGroup) -> Decision:
        """Create a decision that only deletes and needs neither topics nor time."""
        return cls(group, NO_TOPICS, ConsumerGroupLimits(), 0)

    # --- records -------------------------------------------------------------------------------------------------

    def write(self, key: Any, content: Any) -> None:
        """Append a record; None as content deletes the key."""
        self.records.append((key, content))

    def write_epoch(self, epoch: int, hashed: int) -> None:
        """Write the group epoch with the hash of its metadata."""
        content = records.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=hashed)
        self.write(records.ConsumerGroupMetadataKey(group_id=self.group.group_id), content)

    def write_metadata(self, member: Member) -> None:
        """Write a member's metadata."""
        key = records.ConsumerGroupMemberMetadataKey(group_id=self.group.group_id, member_id=member.member_id)
        self.write(key, member.metadata())

    def write_current(self, member: Member) -> None:
        """Write a member's current assignment."""
        key = records.ConsumerGroupCurrentMemberAssignmentKey(group_id=self.group.group_id, member_id=member.member_id)
        self.write(key, member.current())

    def write_target(self, member_id: str, target: Assignment) -> None:
        """Write a member's target assignment."""
        key = records.ConsumerGroupTargetAssignmentMemberKey(group_id=self.group.group_id, member_id=member_id)
        rows = assignment.to_rows(target)
        self.write(key, records.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows))

    def write_assignment_epoch(self, epoch: int) -> None:
        """Write the group epoch of the target assignments."""
        key = records.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group.group_id)
        self.write(key, records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))

    def delete_member(self, member_id: str) -> None:
        """Delete all records of a member."""
        group_id = self.group.group_id
        self.write(records.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        self.write(records.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        self.write(records.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)

    def write_regex(self, expression: str, resolved: ResolvedRegularExpression) -> None:
        """Write the topics that a regular expression matches."""
        key = records.ConsumerGroupRegularExpressionKey(group_id=self.group.group_id, regular_expression=expression)
        content = records.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        )
        self.write(key, content)

    def delete_regex(self, expression: str) -> None:
        """Delete the record of a regular expression."""
        key = records.ConsumerGroupRegularExpressionKey(group_id=self.group.group_id, regular_expression=expression)
        self.write(key, None)

    def delete_group(self) -> None:
        """Delete all records of the group."""
        group_id = self.group.group_id
        for member_id in self.group.members.keys() | self.group.targets.keys():
            self.delete_member(member_id)
        for expression in self.group.regexes:
            self.delete_regex(expression)
        self.write(records.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
        if self.group.has_partition_metadata:
            self.write(records.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)
        self.write(records.ConsumerGroupMetadataKey(group_id=group_id), None)

    def set_timer(self, member_id: str, timer: Timer, after_ms: int) -> None:
        """Set a timer to expire after `after_ms`."""
        due_ms = self.now_ms + after_ms
        self.then.append(lambda: self.group.timers.set(member_id, timer, due_ms))

    def extend_timer(self, member_id: str, timer: Timer, after_ms: int) -> None:
        """Set a timer to expire after `after_ms` or later.

        A lowered timeout does not shorten a session: the response with the new timeout may be lost, and the member goes
        by the old one.
        """
        due_ms = self.now_ms + after_ms
        self.then.append(lambda: self.group.timers.extend(member_id, timer, due_ms))

    def cancel_timer(self, member_id: str, timer: Timer) -> None:
        """Stop a timer."""
        self.then.append(lambda: self.group.timers.cancel(member_id, timer))

    # --- the steps of a request ----------------------------------------------------------------------------------

    def hash_with(
        self,
        gone: Iterable[Member] = (),
        after: Member | None = None,
        expressions: Mapping[str, ResolvedRegularExpression] | None = None,
    ) -> int:
        """Return the metadata hash of the subscribed topics after members have left and one has joined or changed."""
        names, subscribers = self.group.subscribers.copy(), self.group.regex_subscribers.copy()
        for member in gone:
            names.subtract(member.topic_names)
            subscribers.subtract([member.topic_regex])
        if after is not None:
            names.update(after.topic_names)
            subscribers.update([after.topic_regex])
        topic_names = {name for name, count in names.items() if count > 0}
        for expression, resolved in (self.group.regexes if expressions is None else expressions).items():
            if subscribers[expression] > 0:
                topic_names |= resolved.topics
        return metadata_hash(existing(topic_names, self.topics.find).values())

    def bump_if_needed(self, before: Member, after: Member, *, changed: bool) -> int:
        """Return the group epoch, incremented if something `changed` or the metadata of its topics did.

        The topics are read again before new targets are computed: gates may have moved since the epoch was incremented.
        """
        group = self.group
        if not changed and group.metadata_seen is self.topics.image and group.epoch <= group.assignment_epoch:
            return group.epoch
        self.has_read_topics = True
        hashed = self.hash_with([before], after)
        self.then.append(lambda: setattr(group, "metadata_seen", self.topics.image))
        if group.has_partition_metadata:
            self.write(records.ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None)
        if not changed and hashed == group.metadata_hash:
            return group.epoch
        self.write_epoch(group.epoch + 1, hashed)
        return group.epoch + 1

    def retarget_if_needed(self, epoch: int, after: Member, replaced: Member | None) -> tuple[int, Assignment]:
        """Return the assignment epoch and the member's target, recomputed if the group epoch is newer."""
        group = self.group
        if epoch <= group.assignment_epoch:
            return group.assignment_epoch, group.target(after.member_id, after.instance_id)
        members = dict(group.members)
        targets = group.targets
        if replaced is not None:
            del members[replaced.member_id]
            targets = {**targets, after.member_id: targets.get(replaced.member_id, NOTHING)}
        members[after.member_id] = after
        preferred = target_assignment.preferred_assignor(members.values(), self.limits.assignors)
        computed = target_assignment.compute(group, members.values(), targets, preferred, self.topics.find)
        for member_id, target in computed.items():
            if group.targets.get(member_id) != target:
                self.write_target(member_id, target)
        self.write_assignment_epoch(epoch)
        return epoch, computed.get(after.member_id, NOTHING)

    def reconcile(self, member: Member, target_epoch: int, target: Assignment, owned: Assignment | None) -> Member:
        """Reconcile a member by one step, write its current assignment and set its rebalance timer."""
        if member.is_reconciled(target_epoch):
            return member
        after = reconcile(member, target=target, target_epoch=target_epoch, owned=owned, free_of=self._free_for(member))
        if after is member:
            return member
        self.write_current(after)
        if after.classic is None:
            if after.state is UNREVOKED:
                self.set_timer(after.member_id, Timer.REBALANCE, after.rebalance_timeout_ms)
            else:
                self.cancel_timer(after.member_id, Timer.REBALANCE)
        return after

    def _free_for(self, member: Member) -> FreeOf:
        """Return a choice of partitions without a holder; the member may regain those that it is revoking."""
        group, revoking = self.group, member.revoking
        if not revoking:
            return group.free_of
        return lambda topic_id, partitions: (
            group.free_of(topic_id, partitions) | partitions.intersection(revoking.get(topic_id, ()))
        )

    def remove(self, members: Iterable[Member]) -> None:
        """Remove members and expressions that only they used; the next heartbeat computes new targets."""
        gone = list(members)
        for member in gone:
            self.delete_member(member.member_id)
        left = self.group.regex_subscribers.copy()
        left.subtract(member.topic_regex for member in gone)
        for expression in {member.topic_regex for member in gone if member.topic_regex}:
            if left[expression] <= 0:
                self.delete_regex(expression)
        self.write_epoch(self.group.epoch + 1, self.hash_with(gone))
