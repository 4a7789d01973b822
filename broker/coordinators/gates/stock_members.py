"""The members of a group that read a topic, or subscribe to it, and hold no gates: across a merge they lose the order.

A member counts by what it has said, whatever its group has come to: while a group rebalances nobody has anything, and
an expression (KIP-848) that is not resolved yet, or was before the topic was made, counts as what it matches. Groups
that share partitions are promised no order, so nobody there counts. Pure.
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
    """Their client ids and addresses."""
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
    """Whether some member of a group holds gates itself."""
    match group:
        case ClassicGroup():
            return any(one.holds_gates for one in group.members)
        case ConsumerGroup():
            return any(one.holds_gates for one in group.members.values())
    return False


def member_name(one: members.Member | member.Member) -> str:
    """A member, as people know it."""
    return f"{one.client_id}{one.client_host}"


def reads(one: members.Member, topic: str) -> bool:
    """Whether a member that its group's leader assigns to subscribes to the topic or has some of it."""
    return topic in assigned(one.assignment) or any(topic in subscribed(said) for _, said in one.protocols)


def subscribed(said: bytes) -> list[str]:
    """The topics of a subscription; none if it is of another kind."""
    try:
        return decode_subscription(said).topics
    except DecodeError:
        return []


def assigned(said: bytes) -> list[str]:
    """The topics of an assignment; none if it is of another kind, or there is none yet."""
    try:
        return [topic.topic for topic in decode_assignment(said).assigned_partitions]
    except DecodeError:
        return []


def is_assigned(group: ConsumerGroup, one: member.Member, topic: str, topics: TopicsView) -> bool:
    """Whether a member to which the broker assigns subscribes to the topic or has some of it still."""
    held = any(topics.name_of(topic_id) == topic for topic_id in {**one.assigned, **one.revoking})
    return held or topic in group.topics_of(one) or may_match(group, one.topic_regex, topic, topics)


def may_match(group: ConsumerGroup, expression: str, topic: str, topics: TopicsView) -> bool:
    """Whether an expression matches the topic, and nobody has looked for which topics it does since that was made."""
    looked = expression in group.regexes and group.newest_topic_seen == topics.newest_topic
    return bool(expression) and not looked and matcher(expression)(topic)
