"""Authorization of commits, fetches, waits and deletion in a KIP-848 group, and its description.

A member is fenced by its epoch: a commit with another epoch is rejected as a whole. Other clients may commit only while
the group has no members. Source: Kafka's ConsumerGroup (validateOffsetCommit, validateOffsetFetch, validateDeleteGroup,
asDescribedGroup) of 4.1.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Commit, Delete, Observe
from anabranch.broker.coordinators.consumer_groups import target_assignment
from anabranch.broker.coordinators.consumer_groups.assignment import Assignment
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.member import Member
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.protocol.apis import consumer_group_describe as api
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record

FIRST_COMMIT_WITH_EPOCHS: Final = 9
NO_MEMBER: Final = -1
CLASSIC, CONSUMER = 0, 1
"""The types of members in ConsumerGroupDescribe."""


def authorize(group: ConsumerGroup, event: Commit | Observe | Delete) -> None:
    """Check an event against the group. Raises KafkaError."""
    match event:
        case Commit():
            authorize_commit(group, event)
        case Observe():
            authorize_observe(group, event)
        case Delete():
            if group.members:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP, group.describe())


def authorize_commit(group: ConsumerGroup, event: Commit) -> None:
    """Check that the sender may commit: a member at its epoch, or any client while there are no members.

    Raises UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION for classic members and in
    transactions, whose clients know no other code.
    """
    if event.generation < 0 and not group.members:
        return
    anonymous = event.generation == NO_MEMBER and event.member_id == "" and event.instance_id is None
    if event.transactional and anonymous:
        return
    member = group.member(event.member_id)
    if not event.transactional and member.classic is None and event.version < FIRST_COMMIT_WITH_EPOCHS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "members of KIP-848 groups commit with version 9 or newer")
    _check_epoch(member, event.generation, ErrorCode.ILLEGAL_GENERATION if event.transactional else None)


def authorize_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Check that the sender may read committed offsets: a member at its epoch, or a client that names no member."""
    if member_id is not None or epoch >= 0:
        _check_epoch(group.member(member_id or ""), epoch)


def authorize_observe(group: ConsumerGroup, event: Observe) -> None:
    """Check that the sender may wait for commits: a member at its epoch, or any client while there are no members."""
    if event.member_id == "" and not group.members:
        return
    _check_epoch(group.member(event.member_id), event.generation)


def _check_epoch(member: Member, epoch: int, code: ErrorCode | None = None) -> None:
    if epoch != member.epoch:
        stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code or stale, f"epoch {epoch} is not the member's {member.epoch}")


def tombstones(group: ConsumerGroup) -> list[Record]:
    """Return the records that delete a group."""
    decision = Decision.about(group)
    decision.delete_group()
    return decision.records


def describe(group: ConsumerGroup, topics: TopicsView, assignors: tuple[str, ...]) -> api.DescribedGroup:
    """Describe the group for administrators."""
    return api.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=target_assignment.preferred_assignor(group.members.values(), assignors),
        members=[_describe_member(group, member, topics) for member in group.members.values()],
    )


def _describe_member(group: ConsumerGroup, member: Member, topics: TopicsView) -> api.Member:
    return api.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=assignment_by_names(member.assigned, topics),
        target_assignment=assignment_by_names(group.target(member.member_id), topics),
        member_type=CONSUMER if member.classic is None else CLASSIC,
        holds_gates=member.holds_gates,
    )


def assignment_by_names(assignment: Assignment, topics: TopicsView) -> api.Assignment:
    """Convert an assignment to topic names; deleted topics are left out."""
    rows = [
        api.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
        if (name := topics.name_of(topic_id)) is not None
    ]
    return api.Assignment(topic_partitions=rows)
