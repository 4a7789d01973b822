"""ConsumerGroupHeartbeat: a member joins, stays, changes its subscription, or leaves.

A heartbeat carries only changes; null means unchanged. The response has the member's whole assignment if the member
sent a full request or the assignment has just changed, and none otherwise.

Source: KIP-848, KIP-1082 (ids made by clients); Kafka's GroupMetadataManager of 4.1 (consumerGroupHeartbeat,
consumerGroupLeave) and GroupCoordinatorService (validation).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from anabranch.broker.coordinators.consumer_groups.admission import (
    check_epoch,
    check_room,
    known_instance,
    static_joiner,
    update_expressions,
)
from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, of_rows
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.departure import remove_members
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE,
    Member,
    ascending,
)
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

FIRST_VERSION_WITH_CLIENTS_IDS: Final = 1


@value(kw_only=True)
class Sender:
    """The sender of a request."""

    client_id: str
    client_host: str


@value(kw_only=True)
class HeartbeatAnswer:
    """The content of a heartbeat response."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assignment: Assignment | None = None
    """None: unchanged."""
    session_timeout_ms: int = -1
    """The session timeout to return; -1 for a member that did not request it."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Validate a request independently of its group. Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    has_id = request.member_id != ""
    demands: list[tuple[bool, str]] = [
        (has_id or (version < FIRST_VERSION_WITH_CLIENTS_IDS and epoch == JOIN_EPOCH), "MemberId can't be empty."),
        (request.group_id != "", "GroupId can't be empty."),
        (request.instance_id != "", "InstanceId can't be empty."),
        (request.rack_id != "", "RackId can't be empty."),
    ]
    if epoch == JOIN_EPOCH:
        demands += [
            (request.rebalance_timeout_ms != -1, "A joining member must set RebalanceTimeoutMs."),
            (request.topic_partitions == [], "A joining member must send an empty list of TopicPartitions."),
            (
                request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
                "A joining member must set SubscribedTopicNames or SubscribedTopicRegex.",
            ),
        ]
    elif epoch == STATIC_LEAVE:
        demands.append((request.instance_id is not None, "A static member must set InstanceId."))
    else:
        demands.append((epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH, f"MemberEpoch {epoch} is invalid."))
    for met, message in demands:
        if not met:
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"{request.server_assignor!r} is not one of {known}.")


def heartbeat(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    sender: Sender,
    *,
    topics: TopicsView,
    limits: ConsumerGroupLimits,
    now_ms: int,
) -> Decision:
    """Decide on a valid request of a member with an id. Raises KafkaError."""
    decision = Decision(group, topics, limits, now_ms)
    if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE):
        _leave(decision, request)
    else:
        _update_member(decision, request, sender)
    return decision


# --- joining and staying -----------------------------------------------------------------------------------------


def _update_member(decision: Decision, request: ConsumerGroupHeartbeatRequest, sender: Sender) -> None:
    group, member_id = decision.group, request.member_id
    check_room(decision, member_id)
    owned = None if request.topic_partitions is None else of_rows(request.topic_partitions)
    joins = request.member_epoch == JOIN_EPOCH
    replaced: Member | None = None
    if request.instance_id is None:
        before = group.members.get(member_id) or (Member(member_id=member_id) if joins else group.member(member_id))
        check_epoch(before, request.member_epoch, owned)
    elif joins:
        before, replaced = static_joiner(decision, request.instance_id, member_id, classic=False)
    else:
        before = known_instance(group, request.instance_id, member_id)
        check_epoch(before, request.member_epoch, owned)
    after = _with_subscription(before, request, sender, decision.limits)
    changed = group.assignment_epoch <= 0  # a new group, whose epoch may continue the generations of a classic one
    if after is not before:
        decision.write_metadata(after)
        changed = changed or after.topic_names != before.topic_names
    changed = update_expressions(decision, before, after) or changed
    epoch = decision.bump_if_needed(before, after, changed=changed)
    target_epoch, target = decision.retarget_if_needed(epoch, after, replaced)
    settled = decision.reconcile(after, target_epoch, target, owned)
    decision.extend_timer(member_id, Timer.SESSION, decision.limits.session_timeout_ms)
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
        session_timeout_ms=decision.limits.session_timeout_ms if request.asks_session_timeout else -1,
    )


def _with_subscription(
    before: Member, request: ConsumerGroupHeartbeatRequest, sender: Sender, limits: ConsumerGroupLimits
) -> Member:
    """Return the member with the changes of the request; the same object if there are none."""
    new: dict[str, object] = {"client_id": sender.client_id, "client_host": sender.client_host, "classic": None}
    new["holds_gates"] = request.holds_gates
    if request.asks_session_timeout:
        new["told_session_timeout_ms"] = max(before.told_session_timeout_ms, limits.session_timeout_ms)
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


# --- leaving -----------------------------------------------------------------------------------------------------


def _leave(decision: Decision, request: ConsumerGroupHeartbeatRequest) -> None:
    group, epoch = decision.group, request.member_epoch
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = known_instance(group, request.instance_id, request.member_id)
    if epoch == STATIC_LEAVE:
        decision.write_current(dataclasses.replace(member, epoch=STATIC_LEAVE, revoking={}))
        decision.cancel_timer(member.member_id, Timer.REBALANCE)
    else:
        remove_members(decision, [member])
    decision.answer = HeartbeatAnswer(member_id=request.member_id, epoch=epoch)
