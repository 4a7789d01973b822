"""ConsumerGroupHeartbeat: how a member joins, goes on, changes what it wants, and leaves.

Only what a member names in a heartbeat is new; null means what it said before. The answer has the member's whole
assignment when it asked in full, or when the assignment changed just now, and nothing otherwise.

Source: KIP-848, KIP-1082 (ids made by clients); Kafka's GroupMetadataManager of 4.1 (consumerGroupHeartbeat,
consumerGroupLeave) and GroupCoordinatorService (what is valid).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from anabranch.broker.coordinators.consumer_groups import regular_expressions
from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, of_rows, within
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import AWAY, JOINING, LEAVING, Member, ascending
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

FIRST_VERSION_WITH_CLIENTS_IDS: Final = 1


@value(kw_only=True)
class Sender:
    """Where a request came from."""

    client_id: str
    client_host: str


@value(kw_only=True)
class HeartbeatAnswer:
    """What a member is told."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assignment: Assignment | None = None
    """None: as the member knows it."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Raise for what no group could take. Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    has_id = request.member_id != ""
    demands: list[tuple[bool, str]] = [
        (has_id or (version < FIRST_VERSION_WITH_CLIENTS_IDS and epoch == JOINING), "MemberId can't be empty."),
        (request.group_id != "", "GroupId can't be empty."),
        (request.instance_id != "", "InstanceId can't be empty."),
        (request.rack_id != "", "RackId can't be empty."),
    ]
    if epoch == JOINING:
        demands += [
            (request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs has to be given by one that joins."),
            (request.topic_partitions == [], "TopicPartitions has to be an empty list from one that joins."),
            (
                request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
                "SubscribedTopicNames or SubscribedTopicRegex has to be given by one that joins.",
            ),
        ]
    elif epoch == AWAY:
        demands.append((request.instance_id is not None, "InstanceId has to be given by a static member."))
    else:
        demands.append((epoch > JOINING or epoch == LEAVING, f"MemberEpoch {epoch} is none."))
    for met, message in demands:
        if not met:
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"{request.server_assignor!r} is none of {known}.")


def heartbeat(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    sender: Sender,
    *,
    topics: TopicsView,
    limits: ConsumerGroupLimits,
    now_ms: int,
) -> Decision:
    """What a valid request of a member that has an id brings about. Raises KafkaError."""
    decision = Decision(group, topics, limits, now_ms)
    if request.member_epoch in (LEAVING, AWAY):
        _leave(decision, request)
    else:
        _stay(decision, request, sender)
    return decision


# --- joining and staying -----------------------------------------------------------------------------------------


def _stay(decision: Decision, request: ConsumerGroupHeartbeatRequest, sender: Sender) -> None:
    group, member_id = decision.group, request.member_id
    check_room(decision, member_id)
    owned = None if request.topic_partitions is None else of_rows(request.topic_partitions)
    joins = request.member_epoch == JOINING
    replaced: Member | None = None
    if request.instance_id is None:
        before = group.members.get(member_id) or (Member(member_id=member_id) if joins else group.member(member_id))
        check_epoch(before, request.member_epoch, owned)
    elif joins:
        before, replaced = static_joiner(decision, request.instance_id, member_id, classic=False)
    else:
        before = known_instance(group, request.instance_id, member_id)
        check_epoch(before, request.member_epoch, owned)
    after = _as_said(before, request, sender)
    changed = group.epoch == 0
    if after is not before:
        decision.write_metadata(after)
        changed = changed or after.topic_names != before.topic_names
    changed = update_expressions(decision, before, after) or changed
    epoch = decision.bump_if_needed(before, after, changed=changed)
    target_epoch, target = decision.retarget_if_needed(epoch, after, replaced)
    settled = decision.reconcile(after, target_epoch, target, owned)
    decision.set_timer(member_id, Timer.SESSION, decision.limits.session_timeout_ms)
    in_full = joins or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and owned is not None
    )
    decision.answer = HeartbeatAnswer(
        member_id=member_id,
        epoch=settled.epoch,
        interval_ms=decision.limits.heartbeat_interval_ms,
        assignment=settled.assigned if in_full or settled.assigned != before.assigned else None,
    )


def check_room(decision: Decision, member_id: str) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for one that is no member yet."""
    size_max = decision.limits.size_max
    if member_id not in decision.group.members and len(decision.group.members) >= size_max:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group may have {size_max} members")


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the sender is where the group believes it to be, or lost the last answer."""
    if epoch == member.epoch:
        return
    lost_answer = epoch == member.previous_epoch and owned is not None and within(owned, member.assigned)
    if epoch > member.epoch or not lost_answer:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"epoch {epoch} is not the member's {member.epoch}: it has to give up its partitions and join anew.",
        )


def static_joiner(
    decision: Decision, instance_id: str, member_id: str, *, classic: bool
) -> tuple[Member, Member | None]:
    """The member that a static one becomes, and the earlier life of its instance that it takes the place of.

    Raises UNRELEASED_INSTANCE_ID while that one is there: here the newcomer loses.
    """
    earlier = decision.group.static_member(instance_id)
    if earlier is None:
        return decision.group.members.get(member_id) or Member(member_id=member_id), None
    if not classic and earlier.classic is None and earlier.epoch != AWAY:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"instance {instance_id} is member {earlier.member_id}, who has not left."
        )
    joiner = dataclasses.replace(earlier, member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
    decision.delete_member(earlier.member_id)
    decision.write_metadata(joiner)
    decision.write_target(member_id, decision.group.target(earlier.member_id))
    decision.write_current(joiner)
    return joiner, earlier


def known_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """The member of an instance, which the sender says it is. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}.")
    if member.member_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id} is member {member.member_id} now.")
    return member


def _as_said(before: Member, request: ConsumerGroupHeartbeatRequest, sender: Sender) -> Member:
    """The member with what is new of itself in the request; the same object if nothing is."""
    new: dict[str, object] = {"client_id": sender.client_id, "client_host": sender.client_host, "classic": None}
    if request.instance_id is not None:
        new["instance_id"] = request.instance_id
    if request.rack_id is not None:
        new["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        new["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        new["assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        new["topic_names"] = ascending(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        new["topic_regex"] = request.subscribed_topic_regex
    if all(getattr(before, name) == content for name, content in new.items()):
        return before
    return dataclasses.replace(before, **new)  # type: ignore[arg-type]


def update_expressions(decision: Decision, before: Member, after: Member) -> bool:
    """See that expressions get resolved when it is time. Whether the member now has one that was resolved already.

    Raises INVALID_REGULAR_EXPRESSION.
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
    if not unresolved and not subscribers:
        return known
    refreshed_ms = max((one.timestamp_ms for one in group.regexes.values()), default=None)
    if refreshed_ms is not None and now_ms <= refreshed_ms + regular_expressions.REFRESH_MIN_MS:
        return known
    wanted = {one for one, count in subscribers.items() if count - (one == old) + (one == new) > 0}
    wanted |= {new} if new else set()
    if (
        unresolved
        or refreshed_ms is None
        or wanted != group.regexes.keys()
        or group.newest_topic_seen != decision.topics.newest_topic
        or now_ms > refreshed_ms + decision.limits.regex_refresh_interval_ms
    ):
        decision.resolve = frozenset(wanted)
    return known


# --- leaving -----------------------------------------------------------------------------------------------------


def _leave(decision: Decision, request: ConsumerGroupHeartbeatRequest) -> None:
    group, epoch = decision.group, request.member_epoch
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = known_instance(group, request.instance_id, request.member_id)
    if epoch == AWAY:
        decision.write_current(dataclasses.replace(member, epoch=AWAY, revoking={}))
        decision.cancel_timer(member.member_id, Timer.REBALANCE)
    else:
        decision.remove([member])
    decision.answer = HeartbeatAnswer(member_id=request.member_id, epoch=epoch)


# --- what comes from elsewhere -----------------------------------------------------------------------------------


def fence(
    group: ConsumerGroup, *, topics: TopicsView, limits: ConsumerGroupLimits, now_ms: int
) -> tuple[Decision, list[tuple[Member, Timer]]]:
    """The members whose timers have run out go; also says which, and why."""
    over = [(group.members[one], timer) for one, timer in group.timers.pop_due(now_ms) if one in group.members]
    decision = Decision(group, topics, limits, now_ms)
    if over:
        decision.remove({member.member_id: member for member, _ in over}.values())
    return decision, over


def resolved(
    group: ConsumerGroup,
    found: Mapping[str, regular_expressions.ResolvedRegularExpression],
    *,
    topics: TopicsView,
    limits: ConsumerGroupLimits,
    now_ms: int,
) -> Decision:
    """Expressions have been resolved: a new epoch of the group if they match something else now."""
    decision = Decision(group, topics, limits, now_ms)
    wanted = {expression: one for expression, one in found.items() if group.regex_subscribers[expression]}
    changed = False
    for expression, one in wanted.items():
        before = group.regexes.get(expression)
        changed = changed or (one.topics if before is None else one.topics ^ before.topics) != frozenset()
        decision.write_regex(expression, one)
    hashed = decision.hash_with(expressions={**group.regexes, **wanted})
    if changed or (wanted and hashed != group.metadata_hash):
        decision.write_epoch(group.epoch + 1, hashed)
    newest = topics.newest_topic
    decision.then.append(lambda: setattr(group, "newest_topic_seen", newest))
    return decision
