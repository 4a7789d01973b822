"""One group that shares partitions: all that its coordinator knows of it, which is what the records of the journal say.

As with KIP-848 groups, `apply` takes in one record and is the only way in which anything here changes, but
for the timers. Partitions are shared, so nothing has to be given up before another member may have it: a member is at
the epoch of the group as soon as it asks. A partition is handed out once its state is kept (`initialized`).

    Empty   no members
    Stable  there are some
    Dead    deleted, or coordinated elsewhere

Source: KIP-932; Kafka's `ShareGroup`, and the replay methods of `GroupMetadataManager`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.broker.coordinators.consumer_groups import assignment
from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.broker.coordinators.consumer_groups.timers import Timers
from anabranch.protocol import share_group_records as records
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record
from anabranch.protocol.values import value

JOINING: Final = 0
LEAVING: Final = -1
STABLE: Final = 0
"""The state of a member in its record; members of groups that share know no other."""


class ShareGroupState(enum.Enum):
    """The value is the name on the wire."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@value(kw_only=True)
class ShareMember:
    """A member, as its records tell of it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    assigned: Assignment = dataclasses.field(default_factory=dict)

    def metadata(self) -> records.ShareGroupMemberMetadataValue:
        """The record of what the member said of itself."""
        return records.ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
        )

    def current(self) -> records.ShareGroupCurrentMemberAssignmentValue:
        """The record of what the member has been told."""
        return records.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=STABLE,
            assigned_partitions=assignment.to_rows(self.assigned),
        )


@dataclass(slots=True, eq=False)
class ShareGroup:
    """One group."""

    group_id: str
    epoch: int = 0
    """0: nothing of the group is in the journal yet."""
    assignment_epoch: int = 0
    metadata_hash: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    initializing: Assignment = field(default_factory=dict)
    """Partitions whose state is about to be kept."""
    initialized: Assignment = field(default_factory=dict)
    """Partitions whose state is kept: those that members may have."""
    names: dict[bytes, str] = field(default_factory=dict)
    """Topic id -> name, of both."""
    timers: Timers = field(default_factory=Timers)
    metadata_seen: Any = None
    """The image of the metadata for which the hash was compared last."""
    dead: bool = False

    @property
    def state(self) -> ShareGroupState:
        """Where the group stands."""
        if self.dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def protocol_type(self) -> str:
        """What ListGroups says of it."""
        return "share"

    def next_deadline(self) -> int | None:
        """When something of the group has to be looked at."""
        return self.timers.first()

    def subscribed_topics(self) -> frozenset[str]:
        """What any member subscribes to."""
        return frozenset(name for member in self.members.values() for name in member.topic_names)

    def member(self, member_id: str) -> ShareMember:
        """A member. Raises UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def describe(self) -> str:
        """One line for logs."""
        return (
            f"group {self.group_id} {self.state.value} shares epoch={self.epoch} "
            f"members={ {one.member_id: one.epoch for one in self.members.values()} }"
        )

    # --- records -------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Take in what one record says."""
        key, content = record
        _APPLY[type(key)](self, key, content)

    def _apply_group(self, key: Any, said: Any) -> None:
        self.epoch = 0 if said is None else said.epoch
        self.metadata_hash = 0 if said is None else said.metadata_hash

    def _apply_metadata(self, key: Any, said: Any) -> None:
        before = self.members.get(key.member_id)
        if said is None:
            self.members.pop(key.member_id, None)
            self.timers.forget(key.member_id)
            return
        self.members[key.member_id] = dataclasses.replace(
            before or ShareMember(member_id=key.member_id),
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            topic_names=tuple(sorted(set(said.subscribed_topic_names))),
        )

    def _apply_current(self, key: Any, said: Any) -> None:
        before = self.members.get(key.member_id)
        if said is None:
            if before is not None:
                self.members[key.member_id] = dataclasses.replace(
                    before, epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING
                )
            return
        self.members[key.member_id] = dataclasses.replace(
            before or ShareMember(member_id=key.member_id),
            epoch=said.member_epoch,
            previous_epoch=said.previous_member_epoch,
            assigned=assignment.of_rows(said.assigned_partitions),
        )

    def _apply_target(self, key: Any, said: Any) -> None:
        if said is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = assignment.of_rows(said.topic_partitions)

    def _apply_assignment_epoch(self, key: Any, said: Any) -> None:
        self.assignment_epoch = 0 if said is None else said.assignment_epoch

    def _apply_states(self, key: Any, said: Any) -> None:
        if said is None:
            self.initializing, self.initialized = NOTHING, NOTHING
            self.names.clear()
            return
        self.initializing = assignment.of_rows(said.initializing_topics)
        self.initialized = assignment.of_rows(said.initialized_topics)
        self.names = {one.topic_id: one.topic_name for one in (*said.initializing_topics, *said.initialized_topics)}


_APPLY: Final[Mapping[type[Any], Callable[[ShareGroup, Any, Any], None]]] = {
    records.ShareGroupMetadataKey: ShareGroup._apply_group,
    records.ShareGroupMemberMetadataKey: ShareGroup._apply_metadata,
    records.ShareGroupCurrentMemberAssignmentKey: ShareGroup._apply_current,
    records.ShareGroupTargetAssignmentMemberKey: ShareGroup._apply_target,
    records.ShareGroupTargetAssignmentMetadataKey: ShareGroup._apply_assignment_epoch,
    records.ShareGroupStatePartitionMetadataKey: ShareGroup._apply_states,
}


def rows_of(partitions: Assignment, names: Mapping[bytes, str]) -> list[records.TopicPartitionsInfo]:
    """Partitions as the record of a group's states has them."""
    return [
        records.TopicPartitionsInfo(topic_id=one, topic_name=names[one], partitions=sorted(partitions[one]))
        for one in sorted(partitions)
    ]


def joined(one: Assignment, other: Assignment) -> Assignment:
    """Both together."""
    return {topic_id: one.get(topic_id, frozenset()) | other.get(topic_id, frozenset()) for topic_id in {*one, *other}}


def without(one: Assignment, other: Assignment) -> Assignment:
    """What is in the first and not in the second."""
    left = {topic_id: partitions - other.get(topic_id, frozenset()) for topic_id, partitions in one.items()}
    return {topic_id: partitions for topic_id, partitions in left.items() if partitions}


def of_topics(partitions: Iterable[tuple[bytes, Iterable[int]]]) -> Assignment:
    """Partitions of topics, without topics that have none."""
    return {topic_id: frozenset(ones) for topic_id, ones in partitions if ones}
