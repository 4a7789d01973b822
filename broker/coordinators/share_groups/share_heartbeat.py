"""ShareGroupHeartbeat: a member joins, stays, changes its subscription, or leaves; and other changes of a group.

Null in a heartbeat means unchanged. The response has the member's whole assignment when it joins or when its assignment
has changed. The decision lists the partitions without a state; once they are initialized, a new group epoch assigns
them. Source: KIP-932; Kafka's GroupMetadataManager (shareGroupHeartbeat, shareGroupLeave, initializeShareGroupState)
and GroupCoordinatorService (validation), 4.2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from anabranch.broker.coordinators.consumer_groups import assignment
from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.broker.coordinators.consumer_groups.heartbeat import HeartbeatAnswer, Sender
from anabranch.broker.coordinators.consumer_groups.subscribed_topics import Topic, existing, metadata_hash
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.consumer_groups.topics_view import NO_TOPICS, TopicsView
from anabranch.broker.coordinators.share_groups.share_group import (
    JOINING,
    LEAVING,
    ShareGroup,
    ShareMember,
    of_topics,
    rows_of,
    unite,
    without,
)
from anabranch.broker.coordinators.share_groups.simple_assignor import assign
from anabranch.broker.coordinators.share_partitions.share_settings import ShareSettings
from anabranch.protocol import share_group_records as records
from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record
from anabranch.protocol.values import slotted

MEMBER_ID_CHARACTERS_MAX: Final = 36


@slotted
class ShareDecision:
    """A decision about a share group at one time; its records take effect when they are in the log."""

    group: ShareGroup
    topics: TopicsView = NO_TOPICS
    settings: ShareSettings = field(default_factory=ShareSettings)
    now_ms: int = 0
    records: list[Record] = field(default_factory=list)
    then: list[Callable[[], None]] = field(default_factory=list)
    answer: Any = None
    initialize: Assignment = field(default_factory=dict)
    younger: Assignment = field(default_factory=dict)
    """Those of them that are younger than the group: it reads them from their start (R20)."""

    def write(self, key: Any, content: Any) -> None:
        """Append a record; None as content deletes the key."""
        self.records.append((key, content))

    def write_epoch(self, epoch: int, hashed: int) -> None:
        """Write the group epoch with the hash of its metadata."""
        key = records.ShareGroupMetadataKey(group_id=self.group.group_id)
        self.write(key, records.ShareGroupMetadataValue(epoch=epoch, metadata_hash=hashed))

    def write_states(self, initializing: Assignment, initialized: Assignment, names: Mapping[bytes, str]) -> None:
        """Write which partitions have a state in the group."""
        key = records.ShareGroupStatePartitionMetadataKey(group_id=self.group.group_id)
        content = records.ShareGroupStatePartitionMetadataValue(
            initializing_topics=rows_of(initializing, names),
            initialized_topics=rows_of(initialized, names),
            deleting_topics=[],
        )
        self.write(key, content)

    def delete_member(self, member_id: str) -> None:
        """Delete all records of a member."""
        group_id = self.group.group_id
        self.write(records.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        self.write(records.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        self.write(records.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)

    def hash_of(self, names: Iterable[str]) -> int:
        """Return the metadata hash of these topics."""
        return metadata_hash(existing(names, self.topics.find).values())


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST if the request is invalid for any group."""
    epoch = request.member_epoch
    demands = [
        (request.member_id != "", "MemberId can't be empty."),
        (len(request.member_id) <= MEMBER_ID_CHARACTERS_MAX, "MemberId is longer than 36 characters."),
        (request.group_id != "", "GroupId can't be empty."),
        (request.rack_id != "", "RackId can't be empty."),
        (epoch >= LEAVING, f"MemberEpoch {epoch} is invalid."),
        (
            epoch != JOINING or bool(request.subscribed_topic_names),
            "SubscribedTopicNames must be set in first request.",
        ),
    ]
    for met, message in demands:
        if not met:
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def heartbeat(
    group: ShareGroup,
    request: ShareGroupHeartbeatRequest,
    sender: Sender,
    *,
    topics: TopicsView,
    settings: ShareSettings,
    now_ms: int,
) -> ShareDecision:
    """Decide on a valid request. Raises KafkaError."""
    decision = ShareDecision(group, topics, settings, now_ms)
    if request.member_epoch == LEAVING:
        remove(decision, [group.member(request.member_id)])
        decision.answer = HeartbeatAnswer(member_id=request.member_id, epoch=LEAVING)
    else:
        _update_member(decision, request, sender)
    return decision


def _update_member(decision: ShareDecision, request: ShareGroupHeartbeatRequest, sender: Sender) -> None:
    group, member_id = decision.group, request.member_id
    if member_id not in group.members and len(group.members) >= decision.settings.size_max:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group may have {decision.settings.size_max} members")
    joins = request.member_epoch == JOINING
    before = group.members.get(member_id) or (ShareMember(member_id=member_id) if joins else group.member(member_id))
    check_epoch(before, request.member_epoch)
    after = _with_request(before, request, sender)
    if after is not before:
        decision.write(
            records.ShareGroupMemberMetadataKey(group_id=group.group_id, member_id=member_id), after.metadata()
        )
    members = {**group.members, member_id: after}
    epoch = _epoch(decision, members, changed=group.epoch == 0 or after.topic_names != before.topic_names)
    target = _target(decision, members, epoch, member_id)
    if (after.epoch, after.assigned) != (epoch, target):
        after = dataclasses.replace(after, epoch=epoch, previous_epoch=after.epoch, assigned=target)
        key = records.ShareGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member_id)
        decision.write(key, after.current())
    is_full = joins or request.subscribed_topic_names is not None  # its sender lost a response, or has had none yet
    due_ms = decision.now_ms + decision.settings.session_timeout_ms
    decision.then.append(lambda: group.timers.set(member_id, Timer.SESSION, due_ms))
    decision.answer = HeartbeatAnswer(
        member_id=member_id,
        epoch=after.epoch,
        interval_ms=decision.settings.heartbeat_interval_ms,
        assignment=target if is_full or target != before.assigned else None,
    )


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is 0 (joining), the member's, or its previous one."""
    if epoch not in (JOINING, member.epoch, member.previous_epoch):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH, f"epoch {epoch} is not the member's {member.epoch}: it must rejoin."
        )


def _with_request(before: ShareMember, request: ShareGroupHeartbeatRequest, sender: Sender) -> ShareMember:
    names = request.subscribed_topic_names
    after = dataclasses.replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=sender.client_id,
        client_host=sender.client_host,
        topic_names=before.topic_names if names is None else tuple(sorted(set(names))),
    )
    return before if after == before else after


def _epoch(decision: ShareDecision, members: Mapping[str, ShareMember], *, changed: bool) -> int:
    """Return the group epoch, incremented if something changed or the topics did."""
    group, image = decision.group, decision.topics.image
    if not changed and group.metadata_seen is image:
        return group.epoch
    topic_names = {name for member in members.values() for name in member.topic_names}
    hashed = decision.hash_of(topic_names)
    decision.then.append(lambda: setattr(group, "metadata_seen", image))
    interrupted = moves_interrupted(group)
    _initialize(decision, topic_names, interrupted)
    if not changed and not interrupted and hashed == group.metadata_hash:
        return group.epoch
    decision.write_epoch(group.epoch + 1, hashed)
    return group.epoch + 1


def moves_interrupted(group: ShareGroup) -> Assignment:
    """Return the partitions whose start was to be moved, by a request that has ended without an outcome in the journal.

    They keep the state that they have. A group epoch may have begun without them, so another one has to assign them.
    """
    return without(_moved(group), group.in_flight)


def _moved(group: ShareGroup) -> Assignment:
    """Return the partitions with a state whose start is to be moved."""
    return of_topics((one, ones & group.initialized.get(one, frozenset())) for one, ones in group.initializing.items())


def _initialize(decision: ShareDecision, topic_names: Iterable[str], interrupted: Assignment) -> None:
    """Schedule the initialization of these topics' partitions without a state; pending ones are retried."""
    group = decision.group
    topics = existing(topic_names, decision.topics.find)
    there = of_topics((topic.topic_id, topic.partitions) for topic in topics.values())
    missing = without(there, group.initialized)
    if interrupted or without(missing, group.initializing):
        names = {**group.names, **{topic.topic_id: topic.name for topic in topics.values()}}
        initializing = unite(missing, without(group.initializing, interrupted))
        decision.write_states(initializing, group.initialized, names)
    decision.initialize = missing
    decision.younger = of_topics(
        (topic.topic_id, [one for one in missing.get(topic.topic_id, ()) if _is_younger(group, topic, one)])
        for topic in topics.values()
    )


def _is_younger(group: ShareGroup, topic: Topic, index: int) -> bool:
    """Return whether a resize has split the partition off from one in which the group has a state."""
    known = group.initialized.get(topic.topic_id, ())
    while (parent := topic.parents.get(index)) is not None:
        if parent in known:
            return True
        index = parent
    return False


def _target(decision: ShareDecision, members: Mapping[str, ShareMember], epoch: int, member_id: str) -> Assignment:
    """Return the member's target; recompute all targets if the group epoch is newer."""
    group = decision.group
    if epoch <= group.assignment_epoch:
        return group.targets.get(member_id, NOTHING)
    computed = targets_of(group, members, decision.topics)
    for one in members:
        if group.targets.get(one) != computed[one]:
            key = records.ShareGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=one)
            rows = assignment.to_rows(computed[one])
            decision.write(key, records.ShareGroupTargetAssignmentMemberValue(topic_partitions=rows))
    decision.write(
        records.ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id),
        records.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )
    return computed[member_id]


def targets_of(group: ShareGroup, members: Mapping[str, ShareMember], topics: TopicsView) -> dict[str, Assignment]:
    """Compute each member's target from existing partitions with an initialized state.

    Those whose start is being moved wait for it: a leader that has read the former state may never learn of the move.
    """
    initialized = without(group.initialized, without(_moved(group), moves_interrupted(group)))
    targets: dict[str, dict[bytes, frozenset[int]]] = {member: {} for member in members}
    for name in sorted({name for member in members.values() for name in member.topic_names}):
        topic = topics.find(name)
        if topic is None:
            continue
        subscribers = sorted(one.member_id for one in members.values() if name in one.topic_names)
        ready = initialized.get(topic.topic_id, frozenset())
        partitions = [one for one in topic.partitions if one in ready]
        before = {one: group.targets.get(one, NOTHING).get(topic.topic_id, frozenset()) for one in subscribers}
        for member, ones in assign(subscribers, partitions, before).items():
            targets[member][topic.topic_id] = ones
    return dict(targets)


# --- removal, initialization and deletion ----------------------------------------------------------------------


def remove(decision: ShareDecision, members: Iterable[ShareMember]) -> None:
    """Remove members; the next heartbeat computes new targets."""
    gone = {member.member_id for member in members}
    for member_id in sorted(gone):
        decision.delete_member(member_id)
    left = [member for member in decision.group.members.values() if member.member_id not in gone]
    decision.write_epoch(
        decision.group.epoch + 1, decision.hash_of({name for member in left for name in member.topic_names})
    )


def fence(
    group: ShareGroup, *, topics: TopicsView, settings: ShareSettings, now_ms: int
) -> tuple[ShareDecision, list[ShareMember]]:
    """Remove the members whose sessions have expired, and return them."""
    over = [group.members[one] for one, _ in group.timers.pop_due(now_ms) if one in group.members]
    decision = ShareDecision(group, topics, settings, now_ms)
    if over:
        remove(decision, over)
    return decision, over


def on_initialized(group: ShareGroup, partitions: Assignment, topics: TopicsView) -> ShareDecision:
    """Mark the states of these partitions as initialized; a new group epoch assigns them."""
    decision = ShareDecision(group, topics)
    ours = of_topics((one, partitions[one] & group.initializing.get(one, frozenset())) for one in partitions)
    if ours:
        decision.write_states(without(group.initializing, ours), unite(group.initialized, ours), group.names)
        decision.write_epoch(group.epoch + 1, group.metadata_hash)
    return decision


def overtake(group: ShareGroup, state_epoch: int) -> ShareDecision:
    """Raise the group epoch above the epoch of a state that a deleted group of this name has left behind.

    Its initialization came after its deletion. Without a higher epoch this group could never initialize the partition.
    """
    decision = ShareDecision(group)
    if state_epoch >= group.epoch:
        decision.write_epoch(state_epoch + 1, group.metadata_hash)
    return decision


def topics_removed(group: ShareGroup, topic_ids: Iterable[bytes]) -> ShareDecision:
    """Remove these topics from the group's states."""
    decision = ShareDecision(group)
    gone = set(topic_ids)
    decision.write_states(
        {one: ones for one, ones in group.initializing.items() if one not in gone},
        {one: ones for one, ones in group.initialized.items() if one not in gone},
        group.names,
    )
    return decision


def tombstones(group: ShareGroup) -> list[Record]:
    """Return the records that delete a group."""
    decision = ShareDecision(group)
    for member_id in sorted(group.members.keys() | group.targets.keys()):
        decision.delete_member(member_id)
    group_id = group.group_id
    decision.write(records.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    decision.write(records.ShareGroupStatePartitionMetadataKey(group_id=group_id), None)
    decision.write(records.ShareGroupMetadataKey(group_id=group_id), None)
    return decision.records
