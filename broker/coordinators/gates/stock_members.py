"""The stock members of a group that read or subscribe to a topic; they lose the order of keys across a merge.

What counts is what a member sent, in any state of its group: during a rebalance no member has an assignment. A regular
expression (KIP-848) that is unresolved, or was resolved before the topic was created, counts for the topics that it
matches. Share groups guarantee no order, so their members do not count. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.broker.coordinators.classic_groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.regular_expressions import matcher
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.protocol.consumer_protocol import decode_assignment, decode_subscription
from anabranch.protocol.errors import DecodeError

if TYPE_CHECKING:
    from anabranch.broker.coordinators.classic_groups import members
    from anabranch.broker.coordinators.consumer_groups import member
    from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
    from anabranch.broker.coordinators.share_groups.share_group import ShareGroup


def stock_members_reading(
    group: ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup, topic: str, topics: TopicsView
) -> list[str]:
    """Return the client ids and addresses of the stock members that read a topic."""
    match group:
        case ClassicGroup() if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return [member_name(one) for one in group.members if not one.holds_gates and reads(one, topic)]
        case ConsumerGroup():
            found = group.members.values()
            return [member_name(one) for one in found if not one.holds_gates and is_assigned(group, one, topic, topics)]
        case StreamsGroup() if group.topology is not None and any(
            topic in part.source_topics for part in group.topology.subtopologies
        ):
            return [f"{one.client_id}{one.client_host}" for one in group.members.values()]
    return []


def any_holds_gates(group: ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup) -> bool:
    """Return whether some member of a group holds gates itself."""
    match group:
        case ClassicGroup():
            return any(one.holds_gates for one in group.members)
        case ConsumerGroup():
            return any(one.holds_gates for one in group.members.values())
    return False


def member_name(one: members.Member | member.Member) -> str:
    """Format a member for people, by client id and address."""
    return f"{one.client_id}{one.client_host}"


def reads(one: members.Member, topic: str) -> bool:
    """Return whether a classic member subscribes to the topic or is assigned a partition of it."""
    return topic in assigned_topics(one.assignment) or any(
        topic in subscribed_topics(data) for _, data in one.protocols
    )


def subscribed_topics(data: bytes) -> list[str]:
    """Return the topics of a subscription; none if it has another format."""
    try:
        return decode_subscription(data).topics
    except DecodeError:
        return []


def assigned_topics(data: bytes) -> list[str]:
    """Return the topics of an assignment; none if it has another format or is empty."""
    try:
        return [topic.topic for topic in decode_assignment(data).assigned_partitions]
    except DecodeError:
        return []


def is_assigned(group: ConsumerGroup, one: member.Member, topic: str, topics: TopicsView) -> bool:
    """Return whether a KIP-848 member subscribes to the topic or still has a partition of it."""
    held = any(topics.name_of(topic_id) == topic for topic_id in {**one.assigned, **one.revoking})
    return held or topic in group.topics_of(one) or may_match(group, one.topic_regex, topic, topics)


def may_match(group: ConsumerGroup, expression: str, topic: str, topics: TopicsView) -> bool:
    """Return whether an expression matches the topic and was not resolved since the topic was created."""
    looked = expression in group.regexes and group.newest_topic_seen == topics.newest_topic
    return bool(expression) and not looked and matcher(expression)(topic)
