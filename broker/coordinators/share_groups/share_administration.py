"""Authorization of events in a share group, and its description.

A share group has no committed offsets: commits and reads of offsets get GROUP_ID_NOT_FOUND. Source: KIP-932; Kafka's
`ShareGroup` (validateDeleteGroup, asDescribedGroup).
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Commit, Delete, Observe
from anabranch.broker.coordinators.consumer_groups.administration import assignment_by_names
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup, ShareMember
from anabranch.protocol.apis import share_group_describe as api
from anabranch.protocol.errors import ErrorCode, KafkaError

ASSIGNOR: Final = "simple"


def authorize(group: ShareGroup, event: Commit | Observe | Delete) -> None:
    """Check an event against the group. Raises KafkaError."""
    if not isinstance(event, Delete):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} is a share group")
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, group.describe())


def describe(group: ShareGroup, topics: TopicsView) -> api.DescribedGroup:
    """Describe the group for administrators."""
    return api.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_describe_member(member, topics) for member in group.members.values()],
    )


def _describe_member(member: ShareMember, topics: TopicsView) -> api.Member:
    return api.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=assignment_by_names(member.assigned, topics),
    )
