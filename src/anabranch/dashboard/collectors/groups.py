"""Collects groups for the dashboard: members, assignments and committed offsets.

The page computes lag from committed offsets and high watermarks; for share groups, start offsets replace committed
offsets. Only groups whose journal or state have changed are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.broker.coordinators.streams_groups.streams_member import StreamsMember
from anabranch.clients.streams_members import tasks_by_subtopology, tasks_of_member
from anabranch.dashboard.collectors.present_coordinators import present_coordinators
from anabranch.dashboard.collectors.shared_standings import shared_standings
from anabranch.protocol.consumer_protocol import decode_assignment
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC

if TYPE_CHECKING:
    from anabranch.broker.coordinators.classic_groups.members import Member
    from anabranch.broker.coordinators.consumer_groups.member import Member as Assigned
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry
    from anabranch.broker.coordinators.share_groups.share_group import ShareMember
    from anabranch.cluster.cluster_view import ClusterView
    from anabranch.dashboard.state_delta import StateSheet

Tell = Callable[..., None]
Mark = tuple[Any, ...]
"""A version of the inputs of a group's rows: equal marks mean unchanged rows."""


class GroupCollector:
    """Collects the rows of groups, and caches them between collections."""

    def __init__(self, cluster: ClusterView, tell: Tell) -> None:
        """`tell` is called for rebalances, with their details."""
        self._cluster = cluster
        self._tell = tell
        self._looked = False
        self._marks: dict[str, Mark] = {}

    def collect(self, sheet: StateSheet) -> None:
        """Put rows for each group that a running coordinator has loaded."""
        is_present = present_coordinators(self._cluster, CONSUMER_OFFSETS_TOPIC)
        slots = {
            name: (node_id, slot)
            for node_id, node in self._cluster.nodes.items()
            if node.services.broker is not None
            for name, slot in node.services.groups.table.slots.items()
            if is_present(node_id, name)
        }
        sheet.keep("group", {f"group/{name}" for name in slots})
        sheet.keep("commits", {f"commits/{name}" for name in slots})
        marks: dict[str, Mark] = {}
        shared = shared_standings(self._cluster)
        for name, (node_id, slot) in slots.items():
            group = slot.group
            journal = self._cluster.nodes[node_id].services.replicas.replica(CONSUMER_OFFSETS_TOPIC, slot.partition)
            end = -1 if journal is None else journal.high_watermark
            at = group.generation if isinstance(group, ClassicGroup) else group.epoch
            mark = marks[name] = (node_id, id(slot), group.state, at, len(group.members), end)
            if self._marks.get(name) != mark:
                self._put(sheet, name, node_id, slot)
            if name in shared:
                starts = {place: state.start_offset for place, state in shared[name].items()}
                sheet.put(f"commits/{name}", by_topic(starts))
        self._marks = marks
        self._looked = True

    def _put(self, sheet: StateSheet, name: str, node_id: int, slot: GroupEntry) -> None:
        group = slot.group
        withheld = self._cluster.nodes[node_id].services.groups.withheld(name)
        row: dict[str, Any] = {
            "group": name,
            "coordinator": node_id,
            "state": group.state.value,
            "withheld": [[topic, index, reason] for (topic, index), reason in sorted(withheld.items())],
        }
        if not isinstance(group, ClassicGroup):
            names = self._cluster.nodes[node_id].services.metadata.topic_name
            row |= {
                "generation": group.epoch,
                "protocol": group.protocol_type,
                "leader": None,
                "members": [
                    _dealt(one) if isinstance(one, StreamsMember) else _member_row(one, names)
                    for one in sorted(group.members.values(), key=_id)
                ],
            }
        else:
            row |= {
                "generation": group.generation,
                "protocol": group.protocol,
                "leader": group.members.leader_id,
                "members": [
                    _member(one, group.protocol) for one in sorted(group.members, key=lambda one: one.member_id)
                ],
            }
        before = sheet.rows.get(f"group/{name}", {"state": "", "generation": -1})
        if self._looked and (before["state"], before["generation"]) != (row["state"], row["generation"]):
            detail = {"state": row["state"], "generation": row["generation"], "members": len(group.members)}
            self._tell("rebalance", group=name, **detail)
        sheet.put(f"group/{name}", row)
        if not isinstance(group, ShareGroup):
            sheet.put(f"commits/{name}", by_topic({place: at.offset for place, at in slot.offsets.committed.items()}))


def by_topic(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """Convert offsets for the page: topic -> partition -> offset."""
    found: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(index)] = offset
    return found


def _id(one: Assigned | ShareMember | StreamsMember) -> str:
    return one.member_id


def _member(one: Member, protocol: str | None) -> dict[str, Any]:
    try:
        assigned = decode_assignment(one.assignment).assigned_partitions
    except DecodeError:
        assigned = []
    owns = {part.topic: sorted(part.partitions) for part in assigned}
    tasks = tasks_by_subtopology(tasks_of_member(protocol, one.assignment))
    return {"id": one.member_id, "instance": one.instance_id, "client": one.client_id, "owns": owns, "tasks": tasks}


def _dealt(one: StreamsMember) -> dict[str, Any]:
    """A member of a streams group, with its tasks by subtopology."""
    owns = {f"{role.value} {name}": sorted(indexes) for (role, name), indexes in one.assigned.items()}
    return {"id": one.member_id, "instance": None, "client": one.client_id, "owns": owns, "tasks": {}}


def _member_row(one: Assigned | ShareMember, name_of: Callable[[bytes], str | None]) -> dict[str, Any]:
    owns = {name_of(topic_id) or topic_id.hex(): sorted(one.assigned[topic_id]) for topic_id in sorted(one.assigned)}
    instance = getattr(one, "instance_id", None)
    return {"id": one.member_id, "instance": instance, "client": one.client_id, "owns": owns, "tasks": {}}
