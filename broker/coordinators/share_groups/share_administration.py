"""Who may do what with a group that shares partitions, and how it is described.

Such a group has no offsets: whoever wants to commit some, or to see them, is told that there is no such group of
consumers. Source: KIP-932; Kafka's `ShareGroup` (validateDeleteGroup, asDescribedGroup).
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Commit, Delete, Observe
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup, ShareMember
from anabranch.protocol.apis import share_group_describe as api
from anabranch.protocol.errors import ErrorCode, KafkaError

ASSIGNOR: Final = "simple"


def authorize(group: ShareGroup, event: Commit | Observe | Delete) -> None:
    """Raise the KafkaError with which the group refuses the event."""
    if not isinstance(event, Delete):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} shares partitions")
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, group.describe())


def described(group: ShareGroup, topics: TopicsView) -> api.DescribedGroup:
    """The group for administrators."""
    return api.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_described(member, topics) for member in group.members.values()],
    )


def _described(member: ShareMember, topics: TopicsView) -> api.Member:
    rows = [
        api.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(member.assigned[topic_id]))
        for topic_id in sorted(member.assigned)
        if (name := topics.name_of(topic_id)) is not None
    ]
    return api.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=api.Assignment(topic_partitions=rows),
    )


def not_described(group_id: str, error: ErrorCode, message: str = "") -> api.DescribedGroup:
    """A group that does not exist, is of another kind, or is not here."""
    return api.DescribedGroup(
        error_code=error,
        error_message=message or None,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
