"""Prints the decisions of a streams group: a line for each record and response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.broker.coordinators.streams_groups import configured_topology as topologies
from anabranch.broker.coordinators.streams_groups.streams_decision import StreamsAnswer
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, Tasks, each, of_rows
from anabranch.protocol import streams_group_records as records
from anabranch.protocol.group_records import Record
from tests.broker.coordinators.consumer_groups.scenarios.rendering import SAID as MEMBERS_STATES
from tests.broker.coordinators.consumer_groups.scenarios.rendering import state

__all__ = ["answer", "members", "record", "state", "tasks"]

SAID: Final = dict(enumerate(MEMBERS_STATES.values()))
"""What the state of a member is called, by its number in records."""
STATUS: Final[Mapping[int, str]] = {
    topologies.STALE_TOPOLOGY: "its topology is old",
    topologies.MISSING_SOURCE_TOPICS: "sources are missing",
    topologies.INCORRECTLY_PARTITIONED_TOPICS: "topics are not as wide as they should be",
    topologies.MISSING_INTERNAL_TOPICS: "topics in between are missing",
    topologies.SHUTDOWN_APPLICATION: "all are to end",
    topologies.ASSIGNMENT_DELAYED: "the group waits for more members",
}


def answer(told: StreamsAnswer) -> str:
    """`epoch 2, has 0_0`, with the status; without tasks if the response has none."""
    said = f"epoch {told.epoch}" + ("" if told.assigned is None else f", has {tasks(told.assigned)}")
    return "; ".join([said, *(STATUS[code] for code, _ in told.status)])


def record(written: Record) -> str:
    key, content = written
    return _SHOWN[type(key)](key, content)


def members(group: StreamsGroup) -> list[str]:
    """A line for each member: its epoch, what it has, what it is to have if that is something else."""
    lines = []
    for one in group.members.values():
        line = f"{one.member_id} epoch {one.epoch} has {tasks(one.assigned)}" + SAID[one.state]
        line += f" {tasks(one.revoking)}" if one.revoking else ""
        target = group.target(one.member_id)
        lines.append(line + ("" if target == one.assigned else f", is to have {tasks(target)}"))
    return lines


def tasks(dealt: Tasks) -> str:
    """`0_0 0_1 copy-of-1_0`, or `nothing`."""
    names = sorted((role is not ACTIVE, name, index) for role, name, index in each(dealt))
    return " ".join(f"{'copy-of-' if copy else ''}{name}_{index}" for copy, name, index in names) or "nothing"


def _group(key: Any, content: Any) -> str:
    if content is None:
        return "no group"
    return f"group epoch {content.epoch}" + (", not ready" if content.validated_topology_epoch < 0 else "")


def _topology(key: Any, content: Any) -> str:
    if content is None:
        return "no topology"
    parts = []
    for one in content.subtopologies:
        reads = [*one.source_topics, *(topic.name for topic in one.repartition_source_topics)]
        keeps = [topic.name for topic in one.state_changelog_topics]
        parts.append(f"{one.subtopology_id} reads {' '.join(reads)}" + (f" keeps {' '.join(keeps)}" if keeps else ""))
    return f"topology of epoch {content.epoch}: {', '.join(parts)}"


def _metadata(key: Any, content: Any) -> str:
    if content is None:
        return f"no member {key.member_id}"
    return f"member {key.member_id} is a thread of {content.process_id}"


def _target(key: Any, content: Any) -> str:
    return f"no target of {key.member_id}" if content is None else f"target of {key.member_id} is {_dealt(content)}"


def _target_epoch(key: Any, content: Any) -> str:
    return "no target" if content is None else f"target epoch {content.assignment_epoch}"


def _current(key: Any, content: Any) -> str:
    if content is None:
        return f"{key.member_id} has nothing"
    revoking = of_rows(
        content.active_tasks_pending_revocation,
        content.standby_tasks_pending_revocation,
        content.warmup_tasks_pending_revocation,
    )
    said = f"{key.member_id} epoch {content.member_epoch} has {_dealt(content)}" + SAID[content.state]
    return said + (f" {tasks(revoking)}" if revoking else "")


def _dealt(content: Any) -> str:
    return tasks(of_rows(content.active_tasks, content.standby_tasks, content.warmup_tasks))


_SHOWN: Final[Mapping[type[Any], Callable[[Any, Any], str]]] = {
    records.StreamsGroupMetadataKey: _group,
    records.StreamsGroupTopologyKey: _topology,
    records.StreamsGroupMemberMetadataKey: _metadata,
    records.StreamsGroupTargetAssignmentMemberKey: _target,
    records.StreamsGroupTargetAssignmentMetadataKey: _target_epoch,
    records.StreamsGroupCurrentMemberAssignmentKey: _current,
}
