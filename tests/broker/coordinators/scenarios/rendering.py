"""Prints the decisions of a group: one line per effect, with the clients' names of members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import Persist
from anabranch.broker.coordinators.offsets.committed_offsets import Offsets, TopicPartition
from anabranch.protocol.apis.consumer_group_position import ConsumerGroupPositionResponse
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from anabranch.protocol.apis.join_group import JoinGroupResponse
from anabranch.protocol.apis.leave_group import LeaveGroupResponse
from anabranch.protocol.apis.sync_group import SyncGroupResponse
from anabranch.protocol.errors import ErrorCode

Names = Callable[[str], str]
"""Member id -> how the scenario calls it, such as `ann.1`: the first id that the client ann got."""


def response(answer: Any, named: Names) -> str:
    """What a client is answered."""
    match answer:
        case JoinGroupResponse():
            return joined(answer, named)
        case SyncGroupResponse():
            given = f" {text(answer.assignment)}" if answer.error_code == ErrorCode.NONE else ""
            return f"SyncGroup {error(answer.error_code)}{given}"
        case HeartbeatResponse():
            return f"Heartbeat {error(answer.error_code)}"
        case LeaveGroupResponse():
            rows = [
                f"{row.group_instance_id or named(row.member_id)} {error(row.error_code)}" for row in answer.members
            ]
            return f"LeaveGroup {error(answer.error_code)}" + "".join(f"; {row}" for row in rows)
        case ConsumerGroupPositionResponse():
            rows = [f"{one.topic}-{row.partition}={row.position}" for one in answer.topics for row in one.partitions]
            return " ".join([f"ConsumerGroupPosition {error(answer.error_code)}", *rows])
    raise AssertionError(answer)


def joined(answer: JoinGroupResponse, named: Names) -> str:
    """`JoinGroup NONE as ann.1 generation 2 range`; the leader also learns who the members are."""
    code = error(answer.error_code)
    if answer.error_code != ErrorCode.NONE:
        id_required = answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return f"JoinGroup {code}" + (f" come back as {named(answer.member_id)}" if id_required else "")
    said = f"JoinGroup {code} as {named(answer.member_id)} generation {answer.generation_id} {answer.protocol_name}"
    if answer.members:
        said += " leading " + " ".join(named(one.member_id) for one in answer.members)
    else:
        said += f" led by {named(answer.leader)}"
    return said + (" without assigning" if answer.skip_assignment else "")


def written(effect: Persist, named: Names) -> str:
    """Print the group's record with all assignments."""
    value = effect.value
    rows = [f"{named(row.member_id)} {text(row.assignment)}" for row in value.members]
    return f"write group generation {value.generation}: " + ("; ".join(rows) or "no members")


def group_line(group: ClassicGroup, named: Names) -> str:
    """`Stable generation 2 range: ann.1 (leads) bob.1`, with what each waits for."""
    said = []
    for member in group.members:
        notes = ["leads"] if member.member_id == group.members.leader_id else []
        notes += ["joining"] if member.joining is not None else []
        notes += ["syncing"] if member.syncing is not None else []
        said.append(named(member.member_id) + (f" ({', '.join(notes)})" if notes else ""))
    said += [f"{named(one)} (expected)" for one in group.members.pending]
    return f"{state(group)}: {' '.join(said) or 'no members'}"


def state(group: ClassicGroup) -> str:
    """`Stable generation 2`."""
    return f"{group.state.value} generation {group.generation}"


def offsets_line(offsets: Offsets) -> str:
    """`orders-0=5; producer 7 wants orders-1=3`."""
    said = [positions({one: value.offset for one, value in offsets.committed.items()})]
    for producer, staged in offsets.staged.items():
        said.append(f"producer {producer} wants {positions({one: value.offset for one, value in staged.items()})}")
    return "; ".join(said)


def positions(offsets: Mapping[TopicPartition, int]) -> str:
    """`orders-0=5 orders-1=7`, or `none`."""
    return " ".join(f"{topic}-{index}={offset}" for (topic, index), offset in sorted(offsets.items())) or "none"


def error(code: int) -> str:
    """The name of an error code."""
    return ErrorCode(code).name


def text(assignment: bytes) -> str:
    """An assignment; in scenarios it is text."""
    return assignment.decode() or "nothing"
