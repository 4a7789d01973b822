"""Admission of members to a KIP-848 group: size limit, epochs, instance ids and regular expressions.

Static members are identified by their instance ids (KIP-345): a new member with the instance id of a current member is
rejected, unless the current one has left temporarily. Source: KIP-848; Kafka's GroupMetadataManager of 4.1.
"""

from __future__ import annotations

import dataclasses

from anabranch.broker.coordinators.consumer_groups import regular_expressions
from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, within
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.member import JOIN_EPOCH, STATIC_LEAVE, Member
from anabranch.protocol.errors import ErrorCode, KafkaError


def check_room(decision: Decision, member_id: str) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    size_max = decision.limits.size_max
    if member_id not in decision.group.members and len(decision.group.members) >= size_max:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has its maximum of {size_max} members")


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the sender has the member's epoch, or the previous one after a lost response."""
    if epoch == member.epoch:
        return
    lost_answer = epoch == member.previous_epoch and owned is not None and within(owned, member.assigned)
    if epoch > member.epoch or not lost_answer:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"epoch {epoch} is not the member's {member.epoch}: it must abandon its partitions and rejoin.",
        )


def static_joiner(
    decision: Decision, instance_id: str, member_id: str, *, classic: bool
) -> tuple[Member, Member | None]:
    """Return the member that a static client becomes, and the member that it replaces, if any.

    Raises UNRELEASED_INSTANCE_ID while another member has the instance id and has not left.
    """
    earlier = decision.group.static_member(instance_id)
    if earlier is None:
        return decision.group.members.get(member_id) or Member(member_id=member_id), None
    if not classic and earlier.classic is None and earlier.epoch != STATIC_LEAVE:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance {instance_id} is member {earlier.member_id}, which has not left.",
        )
    joiner = dataclasses.replace(earlier, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    decision.delete_member(earlier.member_id)
    decision.write_metadata(joiner)
    decision.write_target(member_id, decision.group.target(earlier.member_id))
    decision.write_current(joiner)
    return joiner, earlier


def known_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """Return the member with an instance id. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}.")
    if member.member_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id} is member {member.member_id} now.")
    return member


def update_expressions(decision: Decision, before: Member, after: Member) -> bool:
    """Schedule the resolution of expressions when due; return whether the member's topics have changed already.

    They have if the new expression was resolved for other members or, from Kafka 4.2 on, if the member dropped its
    expression. Raises INVALID_REGULAR_EXPRESSION.
    """
    group, now_ms = decision.group, decision.now_ms
    old, new = before.topic_regex, after.topic_regex
    subscribers, unresolved, known = group.regex_subscribers, False, False
    if old != new:
        if old and subscribers[old] == 1:
            decision.delete_regex(old)
        if new and not subscribers[new]:
            regular_expressions.check(new)
            unresolved = True
        elif new:
            known = new in group.regexes
        else:
            known = bool(old) and decision.limits.drops_expressions_at_once
    if not unresolved and not subscribers:
        return known
    refreshed_ms = max((one.timestamp_ms for one in group.regexes.values()), default=None)
    # A time to come is of an earlier coordinator whose clock was ahead.
    if refreshed_ms is not None and refreshed_ms <= now_ms <= refreshed_ms + regular_expressions.REFRESH_MIN_MS:
        return known
    expressions = {one for one, count in subscribers.items() if count - (one == old) + (one == new) > 0}
    expressions |= {new} if new else set()
    if (
        unresolved
        or refreshed_ms is None
        or expressions != group.regexes.keys()
        or group.newest_topic_seen != decision.topics.newest_topic
        or now_ms > refreshed_ms + decision.limits.regex_refresh_interval_ms
    ):
        decision.resolve = frozenset(expressions)
    return known
