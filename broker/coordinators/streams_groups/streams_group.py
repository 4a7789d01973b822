"""The state of one streams group, built from the records of the journal.

As in KIP-848 groups, `apply` applies one record, and nothing else changes the state. The exceptions are the timers, and
what a new coordinator computes or collects again: the configured topology, the endpoints, and a requested shutdown.

    Empty        no members
    NotReady     topics are missing or wrong: no member has tasks
    Assigning    the target was computed for an older epoch of the group
    Reconciling  some member has not reached its target
    Stable       every member has its target
    Dead         deleted, or coordinated by another broker

Invariant: `_holders` has every member with a task, assigned or not revoked yet, and its role. Source: KIP-1071; Kafka's
StreamsGroup, and the replay methods of GroupMetadataManager, 4.2.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from anabranch.broker.coordinators.consumer_groups.timers import Timers
from anabranch.broker.coordinators.streams_groups import tasks
from anabranch.broker.coordinators.streams_groups.configured_topology import ConfiguredTopology
from anabranch.broker.coordinators.streams_groups.streams_member import StreamsMember
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, NO_TASKS, Role, Tasks
from anabranch.protocol import streams_group_records as records
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record
from anabranch.protocol.values import slotted

NOT_VALIDATED: Final = -1
"""The validated topology epoch of a group whose topology is not ready."""


class StreamsGroupState(enum.Enum):
    """The state of a streams group; the value is the name on the wire."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@slotted(eq=False)
class StreamsGroup:
    """One streams group."""

    group_id: str
    epoch: int = 0
    """0: the group has no record in the journal."""
    assignment_epoch: int = 0
    """The group epoch for which `targets` was computed."""
    metadata_hash: int = 0
    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: Mapping[str, str] = field(default_factory=dict)
    """The settings of the last task assignment."""
    topology: records.StreamsGroupTopologyValue | None = None
    members: dict[str, StreamsMember] = field(default_factory=dict)
    targets: dict[str, Tasks] = field(default_factory=dict)
    """Member id -> its target assignment."""
    timers: Timers = field(default_factory=Timers)
    configured: ConfiguredTopology | None = None
    """The topology in this cluster; None: not computed by this coordinator."""
    metadata_seen: Any = None
    """The metadata image of that computation."""
    endpoint_epoch: int = 0
    """Grows when a member with an endpoint gets other tasks."""
    shutdown_by: str | None = None
    """The member that requested the shutdown of the application."""
    dead: bool = False
    _holders: dict[tuple[str, int], set[tuple[str, Role]]] = field(default_factory=dict)

    # --- queries -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        """The current state, derived from members and epochs."""
        if self.dead:
            return StreamsGroupState.DEAD
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def protocol_type(self) -> str:
        """The protocol type in ListGroups."""
        return "streams"

    def next_deadline(self) -> int | None:
        """Return the earliest deadline of a timer."""
        return self.timers.first()

    def member(self, member_id: str) -> StreamsMember:
        """Return a member. Raises UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no member {member_id}")
        return found

    def target(self, member_id: str) -> Tasks:
        """Return a member's target assignment."""
        return self.targets.get(member_id, NO_TASKS)

    def free_for(self, process_id: str) -> Callable[[tuple[Role, str], frozenset[int]], frozenset[int]]:
        """Return a choice of the tasks that a thread of an instance may get now.

        An active task belongs to one member. An instance has a task in one role only, because its disk has one state of
        it: until the log has a member's revocation of a task, that member does not get it in another role either.
        """

        def is_free(where: tuple[Role, str], index: int) -> bool:
            role, name = where
            return not any(
                (role is ACTIVE and held is ACTIVE) or self.members[holder].process_id == process_id
                for holder, held in self._holders.get((name, index), ())
            )

        return lambda where, tasks: frozenset([one for one in tasks if is_free(where, one)])

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that the application reads, while it has members."""
        if self.topology is None or not self.members:
            return frozenset()
        return frozenset(self.sources())

    def sources(self) -> Mapping[str, str]:
        """Return topic -> the subtopology that reads it."""
        found = {}
        for one in () if self.topology is None else self.topology.subtopologies:
            found.update(dict.fromkeys(one.source_topics, one.subtopology_id))
            found.update({topic.name: one.subtopology_id for topic in one.repartition_source_topics})
        return found

    def describe(self) -> str:
        """Format the group for logs, on one line."""
        return (
            f"group {self.group_id} {self.state.value} streams epoch={self.epoch} assignment={self.assignment_epoch} "
            f"members={ {one.member_id: one.epoch for one in self.members.values()} }"
        )

    # --- state outside of records --------------------------------------------------------------------------------

    def configure(self, configured: ConfiguredTopology, image: Any) -> None:
        """Store the topology as configured for a metadata image."""
        self.configured, self.metadata_seen = configured, image

    def endpoints_moved(self) -> None:
        """Start a new version of the endpoint information."""
        self.endpoint_epoch += 1

    # --- records -------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Apply one journal record."""
        key, content = record
        _APPLY[type(key)](self, key, content)

    def _apply_group(self, key: Any, content: Any) -> None:
        self.epoch = 0 if content is None else content.epoch
        self.metadata_hash = 0 if content is None else content.metadata_hash
        self.validated_topology_epoch = NOT_VALIDATED if content is None else content.validated_topology_epoch
        rows = () if content is None else content.last_assignment_configs or ()
        self.assignment_configs = {one.key: one.value for one in rows}

    def _apply_topology(self, key: Any, content: Any) -> None:
        self.topology = content
        self.configured = None

    def _apply_metadata(self, key: Any, content: Any) -> None:
        before = self.members.get(key.member_id)
        if content is not None:
            self._replace((before or StreamsMember(member_id=key.member_id)).with_metadata(content))
        elif before is not None:
            del self.members[key.member_id]
            self._release(before)
            self.timers.forget(key.member_id)
            if not self.members:
                self.shutdown_by = None

    def _apply_current(self, key: Any, content: Any) -> None:
        before = self.members.get(key.member_id)
        if content is not None or before is not None:
            self._replace((before or StreamsMember(member_id=key.member_id)).with_current(content))

    def _apply_target(self, key: Any, content: Any) -> None:
        if content is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = tasks.of_rows(
                content.active_tasks, content.standby_tasks, content.warmup_tasks
            )

    def _apply_assignment_epoch(self, key: Any, content: Any) -> None:
        self.assignment_epoch = 0 if content is None else content.assignment_epoch

    def _replace(self, member: StreamsMember) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is not None and before.assigned == member.assigned and before.revoking == member.revoking:
            return
        self._release(before)
        for one in (member.assigned, member.revoking):
            for role, name, index in tasks.each(one):
                self._holders.setdefault((name, index), set()).add((member.member_id, role))

    def _release(self, member: StreamsMember | None) -> None:
        if member is None:
            return
        for one in (member.assigned, member.revoking):
            for role, name, index in tasks.each(one):
                holders = self._holders.get((name, index))
                if holders is not None:
                    holders.discard((member.member_id, role))
                    if not holders:
                        del self._holders[name, index]


_APPLY: Final[Mapping[type[Any], Callable[[StreamsGroup, Any, Any], None]]] = {
    records.StreamsGroupMetadataKey: StreamsGroup._apply_group,
    records.StreamsGroupMemberMetadataKey: StreamsGroup._apply_metadata,
    records.StreamsGroupTargetAssignmentMetadataKey: StreamsGroup._apply_assignment_epoch,
    records.StreamsGroupTargetAssignmentMemberKey: StreamsGroup._apply_target,
    records.StreamsGroupCurrentMemberAssignmentKey: StreamsGroup._apply_current,
    records.StreamsGroupTopologyKey: StreamsGroup._apply_topology,
}
