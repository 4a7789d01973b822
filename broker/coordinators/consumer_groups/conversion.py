"""Conversion of groups with members between the classic protocol and KIP-848.

A classic group is upgraded when the first member of the consumer protocol joins: the others stay members with their
assignments, and their generation becomes their epoch. What a cooperative member owned when it joined, and did not get
again, it may still be about to revoke: nobody gets that before it has joined once more. (In Kafka another member gets
it at once, and the last commit of the former owner may set the group back.)

A KIP-848 group is downgraded when the last such member leaves and classic members remain: these rejoin as in any
rebalance. `group.consumer.migration.policy` may forbid either.

Source: KIP-848; Kafka's ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, GroupMetadataManager of 4.1.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Collection

from anabranch.broker.coordinators.classic_groups.classic_group import CONSUMER_PROTOCOL_TYPE, GATES_MARK, ClassicGroup
from anabranch.broker.coordinators.classic_groups.members import Member as FormerMember
from anabranch.broker.coordinators.consumer_groups import classic_assignment
from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import UNREVOKED, ClassicMember, Member, ascending
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.protocol.consumer_protocol import decode_assignment, decode_subscription
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataMember, GroupMetadataValue


def upgrade(group: ClassicGroup, topics: TopicsView, limits: ConsumerGroupLimits, now_ms: int) -> Decision:
    """Convert a classic group with members to a KIP-848 group. Raises GROUP_ID_NOT_FOUND if it cannot be converted."""
    if not limits.may_upgrade:
        raise _refusal(group, "the migration policy forbids it")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refusal(group, f"its protocol type is {group.protocol_type!r}")
    if len(group.members) > limits.size_max:
        raise _refusal(group, f"it has more than {limits.size_max} members")
    decision = Decision(ConsumerGroup(group.group_id), topics, limits, now_ms)
    joined = [_member(group, former, topics) for former in group.members]
    members = [one for one, _ in joined]
    members = [_with_unrevoked(one, owned, members) for one, owned in joined]
    for member in members:
        decision.write_metadata(member)
    decision.write_epoch(group.generation, _hash(decision, members))
    for member in members:
        decision.write_target(member.member_id, member.assigned)
    decision.write_assignment_epoch(group.generation)
    for member in members:
        decision.write_current(member)
        assert member.classic is not None
        decision.set_timer(member.member_id, Timer.SESSION, member.classic.session_timeout_ms)
    return decision


def is_generations(user_data: bytes) -> bool:
    """Return whether user data are topic generations from this project's leaders (R19); a coordinator needs none."""
    try:
        decoded = json.loads(bytes(user_data))
    except ValueError:
        return False
    return isinstance(decoded, dict) and decoded.keys() == {"generations"}


def _hash(decision: Decision, members: Collection[Member]) -> int:
    scratch = ConsumerGroup(decision.group.group_id)
    for record in decision.records:
        scratch.apply(record)
    return Decision(scratch, decision.topics, decision.limits, decision.now_ms).hash_with()


def _refusal(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id!r} cannot be converted to a KIP-848 group: {reason}"
    )


def _member(group: ClassicGroup, former: FormerMember, topics: TopicsView) -> tuple[Member, Assignment]:
    """Return a member with its assignment, and what it owned when it joined."""
    metadata = former.metadata(group.protocol) or former.protocols[0][1]
    try:
        subscription = decode_subscription(metadata)
        assignment = decode_assignment(former.assignment)
    except DecodeError as error:
        raise _refusal(group, f"a member sent a malformed subscription: {error}") from None
    if assignment.user_data and not is_generations(assignment.user_data):
        raise _refusal(group, f"its assignor {group.protocol!r} stores user data, which the conversion would lose")
    member = Member(
        member_id=former.member_id,
        instance_id=former.instance_id,
        rack_id=subscription.rack_id,
        client_id=former.client_id,
        client_host=former.client_host,
        topic_names=ascending(subscription.topics),
        rebalance_timeout_ms=former.rebalance_timeout_ms,
        classic=ClassicMember(session_timeout_ms=former.session_timeout_ms, protocols=former.protocols),
        holds_gates=former.holds_gates,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=classic_assignment.by_ids(assignment.assigned_partitions, topics),
    )
    return member, classic_assignment.by_ids(subscription.owned_partitions, topics)


def _with_unrevoked(member: Member, owned: Assignment, members: Collection[Member]) -> Member:
    """Return the member with those partitions that it owned when it joined, and that nobody has got since."""
    unrevoked = {
        topic_id: left
        for topic_id, partitions in owned.items()
        if (left := partitions.difference(*(one.assigned.get(topic_id, frozenset()) for one in members)))
    }
    return dataclasses.replace(member, state=UNREVOKED, revoking=unrevoked) if unrevoked else member


def may_downgrade(group: ConsumerGroup, going: Collection[str], limits: ConsumerGroupLimits) -> bool:
    """Return whether the group may be downgraded when these members leave: only classic members remain."""
    left = [member for member in group.members.values() if member.member_id not in going]
    return (
        bool(left)
        and all(member.classic is not None for member in left)
        and limits.may_downgrade
        and len(left) <= limits.classic_size_max
    )


def downgrade(group: ConsumerGroup, going: Collection[str], topics: TopicsView, now_ms: int) -> GroupMetadataValue:
    """Return the classic group that remains when these members leave, as the journal's value."""
    left = [member for member in group.members.values() if member.member_id not in going]
    protocol = _protocol(left)
    return GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=None,
        current_state_timestamp=now_ms,
        members=[_row(member, protocol, group.targets.get(member.member_id, NOTHING), topics) for member in left],
    )


def _protocol(members: Collection[Member]) -> str:
    """Return the common protocol that most members prefer."""
    offers = [[name for name, _ in one.classic.protocols] for one in members if one.classic is not None]
    shared = [name for name in offers[0] if all(name in names for names in offers)]
    assert shared, "the classic members have no common protocol"
    votes = Counter(next(name for name in names if name in shared) for names in offers)
    return max(votes, key=votes.__getitem__)


def _row(member: Member, protocol: str, target: Assignment, topics: TopicsView) -> GroupMetadataMember:
    classic = member.classic
    assert classic is not None
    return GroupMetadataMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=classic.session_timeout_ms,
        subscription=dict(classic.protocols)[protocol] + (GATES_MARK if member.holds_gates else b""),
        assignment=classic_assignment.encode(target, classic, topics),
    )
