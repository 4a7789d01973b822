"""Reads which tasks the members of a Streams application have, from what a coordinator knows of their group.

Instances of Kafka Streams and of this project are members of a classic group with the assignor `stream`: the leader's
assignment has the tasks of each member, and its subscription has the address at which it answers queries. Pure; source:
AssignmentInfo and SubscriptionInfo of Kafka Streams.

    active     the member runs the task, or restores its state in order to run it
    standby    the member keeps a copy of the task's state, or warms one up
    removed    the member hands over the state of a partition that a resize has removed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from anabranch.protocol import streams_protocol
from anabranch.protocol.consumer_protocol import decode_assignment, decode_subscription
from anabranch.protocol.errors import DecodeError

STREAM: Final = "stream"
"""The name of the assignor."""


class MemberTask(NamedTuple):
    """One task of a member."""

    role: str
    subtopology: int
    partition: int


def tasks_of_member(protocol: str | None, assignment: bytes) -> list[MemberTask]:
    """Return the tasks in a member's assignment, in order; none before the first one, or in another protocol."""
    if protocol != STREAM:
        return []
    try:
        read = streams_protocol.decode_assignment(decode_assignment(assignment).user_data or b"")
    except DecodeError:
        return []
    active = {MemberTask("active", one.subtopology, one.partition) for one in read.active_tasks}
    others = {
        MemberTask("standby" if one.partitions else "removed", one.task.subtopology, one.task.partition)
        for one in read.standby_tasks
    }
    return sorted(active | others)


def application_server(protocol: str, subscription: bytes) -> str:
    """Return HOST:PORT at which a member answers queries; empty if it does not say."""
    if protocol != STREAM:
        return ""
    try:
        read = streams_protocol.decode_subscription(decode_subscription(subscription).user_data or b"")
    except DecodeError:
        return ""
    return read.user_end_point.decode(errors="replace")


def tasks_text(tasks: list[MemberTask]) -> str:
    """Return tasks as text: "active 0_0 0_1, standby 0_2"."""
    return ", ".join(f"{role} {' '.join(names)}" for role, names in _by_role(tasks))


def tasks_by_subtopology(tasks: list[MemberTask]) -> dict[str, list[int]]:
    """Return the partitions of tasks by role and subtopology: {"active 0": [0, 1]}."""
    found: dict[str, list[int]] = {}
    for one in tasks:
        found.setdefault(f"{one.role} {one.subtopology}", []).append(one.partition)
    return found


def _by_role(tasks: list[MemberTask]) -> Iterator[tuple[str, list[str]]]:
    for role in dict.fromkeys(one.role for one in tasks):
        yield role, [f"{one.subtopology}_{one.partition}" for one in tasks if one.role == role]
