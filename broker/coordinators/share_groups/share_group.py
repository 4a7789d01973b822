"""The state of one share group, built from the records of the journal.

As in KIP-848 groups, `apply` applies one record, and nothing else changes the state, except for the timers. Partitions
are shared, so no member has to revoke one before another gets it: a member reaches the group epoch with its next
heartbeat. A partition is assigned once its state is initialized (`initialized`).

    Empty   no members
    Stable  at least one member
    Dead    deleted, or coordinated by another broker

Source: KIP-932; Kafka's `ShareGroup`, and the replay methods of `GroupMetadataManager`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from anabranch.broker.coordinators.consumer_groups import assignment
from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.broker.coordinators.consumer_groups.timers import Timers
from anabranch.protocol import share_group_records as records
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record
from anabranch.protocol.values import slotted, value

JOINING: Final = 0
LEAVING: Final = -1
STABLE: Final = 0
"""The state of a member in its record; members of share groups have no other."""


class ShareGroupState(enum.Enum):
    """The state of a share group; the value is the name on the wire."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@value(kw_only=True)
class ShareMember:
    """One member of a share group."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    assigned: Assignment = dataclasses.field(default_factory=dict)

    def metadata(self) -> records.ShareGroupMemberMetadataValue:
        """Return the value of the member's metadata record."""
        return records.ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
        )

    def current(self) -> records.ShareGroupCurrentMemberAssignmentValue:
        """Return the value of the member's current assignment record."""
        return records.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=STABLE,
            assigned_partitions=assignment.to_rows(self.assigned),
        )


@slotted(eq=False)
class ShareGroup:
    """One share group."""

    group_id: str
    epoch: int = 0
    """0: the group has no record in the journal."""
    assignment_epoch: int = 0
    metadata_hash: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    initializing: Assignment = field(default_factory=dict)
    initialized: Assignment = field(default_factory=dict)
    """Partitions whose state is initialized, which members may be assigned."""
    names: dict[bytes, str] = field(default_factory=dict)
    """Topic id -> name, for both."""
    timers: Timers = field(default_factory=Timers)
    metadata_seen: Any = None
    """The metadata image at the last comparison of the hash."""
    in_flight: Assignment = field(default_factory=dict)
    """Partitions that this coordinator is initializing now; not in the journal."""
    dead: bool = False

    @property
    def state(self) -> ShareGroupState:
        """The current state."""
        if self.dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def protocol_type(self) -> str:
        """The protocol type in ListGroups."""
        return "share"

    def next_deadline(self) -> int | None:
        """Return the earliest deadline of a member's session."""
        return self.timers.first()

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any member subscribes to."""
        return frozenset(name for member in self.members.values() for name in member.topic_names)

    def member(self, member_id: str) -> ShareMember:
        """Return a member. Raises UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def describe(self) -> str:
        """Format the group for logs, on one line."""
        return (
            f"group {self.group_id} {self.state.value} shares epoch={self.epoch} "
            f"members={ {one.member_id: one.epoch for one in self.members.values()} }"
        )

    # --- records -------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Apply one journal record."""
        key, content = record
        _APPLY[type(key)](self, key, content)

    def _apply_group(self, key: Any, content: Any) -> None:
        self.epoch = 0 if content is None else content.epoch
        self.metadata_hash = 0 if content is None else content.metadata_hash

    def _apply_metadata(self, key: Any, content: Any) -> None:
        before = self.members.get(key.member_id)
        if content is None:
            self.members.pop(key.member_id, None)
            self.timers.forget(key.member_id)
            return
        self.members[key.member_id] = dataclasses.replace(
            before or ShareMember(member_id=key.member_id),
            rack_id=content.rack_id,
            client_id=content.client_id,
            client_host=content.client_host,
            topic_names=tuple(sorted(set(content.subscribed_topic_names))),
        )

    def _apply_current(self, key: Any, content: Any) -> None:
        before = self.members.get(key.member_id)
        if content is None:
            if before is not None:
                self.members[key.member_id] = dataclasses.replace(
                    before, epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING
                )
            return
        self.members[key.member_id] = dataclasses.replace(
            before or ShareMember(member_id=key.member_id),
            epoch=content.member_epoch,
            previous_epoch=content.previous_member_epoch,
            assigned=assignment.of_rows(content.assigned_partitions),
        )

    def _apply_target(self, key: Any, content: Any) -> None:
        if content is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = assignment.of_rows(content.topic_partitions)

    def _apply_assignment_epoch(self, key: Any, content: Any) -> None:
        self.assignment_epoch = 0 if content is None else content.assignment_epoch

    def _apply_states(self, key: Any, content: Any) -> None:
        if content is None:
            self.initializing, self.initialized = NOTHING, NOTHING
            self.names.clear()
            return
        self.initializing = assignment.of_rows(content.initializing_topics)
        self.initialized = assignment.of_rows(content.initialized_topics)
        self.names = {
            one.topic_id: one.topic_name for one in (*content.initializing_topics, *content.initialized_topics)
        }


_APPLY: Final[Mapping[type[Any], Callable[[ShareGroup, Any, Any], None]]] = {
    records.ShareGroupMetadataKey: ShareGroup._apply_group,
    records.ShareGroupMemberMetadataKey: ShareGroup._apply_metadata,
    records.ShareGroupCurrentMemberAssignmentKey: ShareGroup._apply_current,
    records.ShareGroupTargetAssignmentMemberKey: ShareGroup._apply_target,
    records.ShareGroupTargetAssignmentMetadataKey: ShareGroup._apply_assignment_epoch,
    records.ShareGroupStatePartitionMetadataKey: ShareGroup._apply_states,
}


def rows_of(partitions: Assignment, names: Mapping[bytes, str]) -> list[records.TopicPartitionsInfo]:
    """Convert partitions to rows of the record of a group's states."""
    return [
        records.TopicPartitionsInfo(topic_id=one, topic_name=names[one], partitions=sorted(partitions[one]))
        for one in sorted(partitions)
    ]


def unite(one: Assignment, other: Assignment) -> Assignment:
    """Return the union of two assignments."""
    return {topic_id: one.get(topic_id, frozenset()) | other.get(topic_id, frozenset()) for topic_id in {*one, *other}}


def without(one: Assignment, other: Assignment) -> Assignment:
    """Return the partitions of the first assignment that are not in the second."""
    left = {topic_id: partitions - other.get(topic_id, frozenset()) for topic_id, partitions in one.items()}
    return {topic_id: partitions for topic_id, partitions in left.items() if partitions}


def of_topics(partitions: Iterable[tuple[bytes, Iterable[int]]]) -> Assignment:
    """Return an assignment without empty topics."""
    return {topic_id: frozenset(ones) for topic_id, ones in partitions if ones}
