"""Prints the decisions of a KIP-848 group: a line for each record and response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, each, of_rows
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.heartbeat import HeartbeatAnswer
from anabranch.broker.coordinators.consumer_groups.member import MemberState
from anabranch.protocol import consumer_group_records as records
from anabranch.protocol.group_records import Record

SAID: Final[Mapping[MemberState, str]] = {
    MemberState.STABLE: "",
    MemberState.UNREVOKED_PARTITIONS: ", has to give up",
    MemberState.UNRELEASED_PARTITIONS: ", waits for others",
    MemberState.UNKNOWN: ", in an unknown state",
}


def answer(told: HeartbeatAnswer) -> str:
    """`epoch 2, has orders-0`; without partitions if the response has none."""
    return f"epoch {told.epoch}" + ("" if told.assignment is None else f", has {partitions(told.assignment)}")


def record(written: Record) -> str:
    key, content = written
    return _SHOWN[type(key)](key, content)


def state(group: ConsumerGroup) -> str:
    """`Reconciling epoch 2`; of the target too, where it is another one."""
    behind = "" if group.epoch == group.assignment_epoch else f", target of epoch {group.assignment_epoch}"
    return f"{group.state.value} epoch {group.epoch}{behind}"


def members(group: ConsumerGroup) -> list[str]:
    """A line for each member: its epoch, what it has, what it is to have if that is something else."""
    lines = []
    for one in group.members.values():
        line = f"{one.member_id} epoch {one.epoch} has {partitions(one.assigned)}" + SAID[one.state]
        line += f" {partitions(one.revoking)}" if one.revoking else ""
        target = group.target(one.member_id)
        lines.append(line + ("" if target == one.assigned else f", is to have {partitions(target)}"))
    return lines


def partitions(assignment: Assignment) -> str:
    """`orders-0 orders-1`, or `nothing`."""
    return " ".join(f"{name(topic_id)}-{index}" for topic_id, index in each(assignment)) or "nothing"


def name(topic_id: bytes) -> str:
    """The topic's name, which is its id in scenarios."""
    return topic_id.rstrip(b"\0").decode()


def _epoch(key: Any, content: Any) -> str:
    return "no group" if content is None else f"group epoch {content.epoch}"


def _metadata(key: Any, content: Any) -> str:
    if content is None:
        return f"no member {key.member_id}"
    wants = [*content.subscribed_topic_names, *([f"/{e}/"] if (e := content.subscribed_topic_regex) else [])]
    said = f"member {key.member_id} wants {' '.join(wants) or 'nothing'}"
    return said + (f" as instance {content.instance_id}" if content.instance_id else "")


def _target(key: Any, content: Any) -> str:
    if content is None:
        return f"no target of {key.member_id}"
    return f"target of {key.member_id} is {partitions(of_rows(content.topic_partitions))}"


def _target_epoch(key: Any, content: Any) -> str:
    return "no target" if content is None else f"target epoch {content.assignment_epoch}"


def _current(key: Any, content: Any) -> str:
    if content is None:
        return f"{key.member_id} has nothing"
    said = f"{key.member_id} epoch {content.member_epoch} has {partitions(of_rows(content.assigned_partitions))}"
    said += SAID[MemberState(content.state)]
    revoking = of_rows(content.partitions_pending_revocation)
    return said + (f" {partitions(revoking)}" if revoking else "")


def _expression(key: Any, content: Any) -> str:
    if content is None:
        return f"no expression /{key.regular_expression}/"
    return f"expression /{key.regular_expression}/ is {' '.join(sorted(content.topics)) or 'nothing'}"


_SHOWN: Final[Mapping[type[Any], Callable[[Any, Any], str]]] = {
    records.ConsumerGroupMetadataKey: _epoch,
    records.ConsumerGroupMemberMetadataKey: _metadata,
    records.ConsumerGroupTargetAssignmentMemberKey: _target,
    records.ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    records.ConsumerGroupCurrentMemberAssignmentKey: _current,
    records.ConsumerGroupRegularExpressionKey: _expression,
}
