"""The state of one classic group member: builds requests to the coordinator and handles its responses.

    UNJOINED --join--> JOINING --joined--> SYNCING --synced--> STABLE --told to rebalance--> UNJOINED

Pure: it returns requests and takes responses. Every error of the classic group protocol leads to one action here: join
again (and with which identity), find the coordinator again, wait and retry, or give up. The leader's assignment carries
the topic generations that it is based on (rule R19): a member waits for metadata that is not older, so that it reads no
child without knowing its parent. They are in the user data, or follow it if the assignor has its own.

A cooperative member sends its owned partitions when it joins, and keeps reading (KIP-429). If the group continues
without it, all of them are `lost`; the member has to give them up before it rejoins, because others may own them from
then on.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from anabranch.clients.consumer.consumer_partition_assignor import (
    MemberAssignment,
    MemberView,
    PartitionAssignor,
    RebalanceProtocol,
    still_owned,
)
from anabranch.clients.consumer.lease import Lease
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from anabranch.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    decode_generations,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

NO_GENERATION: Final = -1


class State(enum.Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class HeartbeatOutcome(enum.Enum):
    """What a response requires of the session that drives the member."""

    PROCEED = "go on"
    REJOIN = "join the group again"
    FIND_COORDINATOR = "find the coordinator again"
    WAIT = "ask again a little later"


_FATES: Final[Mapping[ErrorCode, HeartbeatOutcome]] = {
    ErrorCode.NONE: HeartbeatOutcome.PROCEED,
    ErrorCode.REBALANCE_IN_PROGRESS: HeartbeatOutcome.REJOIN,
    ErrorCode.MEMBER_ID_REQUIRED: HeartbeatOutcome.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: HeartbeatOutcome.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: HeartbeatOutcome.REJOIN,
    ErrorCode.NOT_COORDINATOR: HeartbeatOutcome.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: HeartbeatOutcome.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: HeartbeatOutcome.WAIT,
}


class TopicShape(NamedTuple):
    """The part of a topic on which an assignment depends; when it changes, the member has to rejoin."""

    generation: int
    partitions: frozenset[int]
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A member's assignment, and the topic generations that the leader based it on."""

    partitions: tuple[TopicPartition, ...]
    generations: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, TopicShape] = field(default_factory=dict)
    """The topic shapes behind the assignment, as far as this member knows: all of them if it is the leader."""
    user_data: bytes | None = None
    group_generation: int = NO_GENERATION


class ClassicMembership:
    """The member's side of the classic group protocol."""

    def __init__(
        self,
        group_id: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_interval_ms: int,
        assignors: Sequence[PartitionAssignor],
        group_instance_id: str | None = None,
        client_rack: str = "",
    ) -> None:
        self.holds_gates = True
        """Whether the member holds order gates, so the coordinator need not; simulated stock members hold none."""
        self.group_id = group_id
        self.topics = tuple(sorted(topics))
        self.assignors = tuple(assignors)
        self.cooperative = all(RebalanceProtocol.COOPERATIVE in one.protocols for one in assignors)
        """Whether partitions are kept during a rebalance: true if all assignors support it (KIP-429)."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.state = State.UNJOINED
        self.protocol = ""
        self.is_leader = False
        self.assigns = False
        """Whether it assigns partitions now. A static leader that returns does not: the assignment stays (KIP-814)."""
        self.session_timeout_ms = session_timeout_ms
        """After this time without a heartbeat the coordinator removes the member, as far as it is known."""
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.instance_id = group_instance_id
        self._client_rack = client_rack
        self.owner = ConsumerGroupMetadata(group_id, group_instance_id=group_instance_id)
        """The identity under which the member was last assigned partitions; its deliveries carry it."""
        self._members: tuple[MemberView, ...] = ()
        self._owned: tuple[TopicPartition, ...] = ()
        self.keeps_lost = False
        """The group continued without this member, which has not yet given up its partitions."""
        self.lease = Lease(
            session_timeout_s=session_timeout_ms / 1000,
            rebalance_timeout_s=rebalance_timeout_ms / 1000,
            heartbeat_interval_s=heartbeat_interval_ms / 1000,
            static=group_instance_id is not None,
        )

    @property
    def assignor(self) -> PartitionAssignor:
        """The assignor that the group has chosen."""
        return next(one for one in self.assignors if one.name == self.protocol)

    @property
    def members(self) -> tuple[MemberView, ...]:
        """The members, as the group's leader receives them; empty for other members."""
        return self._members

    @property
    def stable(self) -> bool:
        """Whether the current assignment is valid."""
        return self.state is State.STABLE

    @property
    def is_outside(self) -> bool:
        """Whether the coordinator does not know this member."""
        return self.generation == NO_GENERATION

    @property
    def lost(self) -> bool:
        """Whether the group continued without this member: its commits would overwrite those of others."""
        return self.keeps_lost or self.is_outside

    def may_commit(self, now_s: float) -> bool:
        """Whether no other member can own this member's partitions: otherwise it may deliver no records.

        `now_s` is of the clock of `Lease`. The answer holds only now: ask again after every await.
        """
        lost = self.keeps_lost or self.generation == NO_GENERATION  # called for every single record delivered
        return now_s < self.lease.until and not lost and (self.cooperative or self.state is State.STABLE)

    def unsure(self, now_s: float) -> bool:
        """Whether the member may have been replaced, and must ask the coordinator before it acts for the group."""
        answers = self.cooperative or self.state in (State.STABLE, State.UNJOINED)
        return answers and not self.lost and now_s >= self.lease.known_until

    def describe(self) -> str:
        """Describe the member in one line for logs."""
        return f"{self.member_id or 'new member'} of {self.group_id}, generation {self.generation}, {self.state.value}"

    def expire(self, *, forget_identity: bool = False) -> None:
        """Invalidate the membership: rejoin, as a new member if the coordinator does not know this one."""
        self.state = State.UNJOINED
        self.is_leader = self.assigns = False
        self._members = ()
        if forget_identity:
            self.member_id = ""
            self.forget_generation()

    def forget_generation(self) -> None:
        """Drop the generation: the group continued without this member: its owned partitions are lost (KIP-429)."""
        self.generation = NO_GENERATION
        self.keeps_lost = self.keeps_lost or (self.cooperative and bool(self._owned))
        self._owned = ()

    def owns(self, partitions: Collection[TopicPartition]) -> None:
        """Record the partitions that this member reads, for its next join. Lost ones are given up."""
        self._owned = tuple(sorted(partitions))
        self.keeps_lost = False

    def join_request(self) -> JoinGroupRequest:
        """Build a JoinGroup request."""
        self.state = State.JOINING
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=assignor.name, metadata=self._subscription(assignor))
                for assignor in self.assignors
            ],
            holds_gates=self.holds_gates,
        )

    def _subscription(self, assignor: PartitionAssignor) -> bytes:
        """Owned partitions are sent only for cooperative assignors that keep them: others would wait for them."""
        keeps = self.cooperative or RebalanceProtocol.COOPERATIVE not in assignor.protocols
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=list(self.topics),
                user_data=assignor.subscription_user_data(self.topics),
                owned_partitions=by_topic(self._owned if keeps else ()),
                generation_id=self.generation,
                rack_id=self._client_rack or None,
            )
        )

    def on_join_response(self, response: JoinGroupResponse) -> HeartbeatOutcome:
        """Handle a JoinGroup response. Raises KafkaError if the group refuses this member for good."""
        code = ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        if code is not ErrorCode.NONE:
            return self._fate(code)
        self.state = State.SYNCING
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.protocol = response.protocol_name or ""
        self.is_leader = response.leader == response.member_id
        self.assigns = self.is_leader and not response.skip_assignment
        if all(one.name != self.protocol for one in self.assignors):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group assigns by {self.protocol!r}")
        self._members = tuple(map(_view, response.members)) if self.is_leader else ()
        return HeartbeatOutcome.PROCEED

    def sync_request(
        self, assignment: Mapping[str, MemberAssignment] | None = None, generations: Mapping[str, int] | None = None
    ) -> SyncGroupRequest:
        """Build a SyncGroup request: as leader with the assignment and its topic generations, otherwise without."""
        assignment = assignment or {}
        if assignment and RebalanceProtocol.COOPERATIVE in self.assignor.protocols:
            taken = still_owned(self._members, {name: given.partitions for name, given in assignment.items()})
            if taken:
                partition, member_id = min(taken.items())
                raise RuntimeError(
                    f"assignor {self.protocol!r} gives {member_id} {partition}, which another member still owns"
                )
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=_encode(given, generations or {}))
                for member_id, given in sorted(assignment.items())
            ],
        )

    def on_sync_response(self, response: SyncGroupResponse) -> tuple[HeartbeatOutcome, Assigned]:
        """Handle a SyncGroup response: return this member's partitions."""
        fate = self._fate(ErrorCode(response.error_code))
        if fate is not HeartbeatOutcome.PROCEED:
            return fate, Assigned(())
        decoded = decode_assignment(response.assignment)
        partitions = tuple(
            TopicPartition(row.topic, index) for row in decoded.assigned_partitions for index in row.partitions
        )
        self.state = State.STABLE
        if not self.cooperative:
            self._owned = partitions
        self.owner = ConsumerGroupMetadata(self.group_id, self.generation, self.member_id, self.instance_id)
        generations = _generations(bytes(response.assignment), decoded.user_data)
        user_data = None if decoded.user_data is None else bytes(decoded.user_data)
        return fate, Assigned(partitions, generations, user_data=user_data, group_generation=self.generation)

    def heartbeat_request(self) -> HeartbeatRequest:
        """Build a Heartbeat request."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def leave_request(self) -> LeaveGroupRequest:
        """Build a LeaveGroup request, so that the others need not wait for the session timeout."""
        return LeaveGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason="closing")],
        )

    def on_heartbeat(self, code: ErrorCode) -> HeartbeatOutcome:
        """Return what the error code of a heartbeat, a commit or a position response means for the membership."""
        return self._fate(code)

    def _fate(self, code: ErrorCode) -> HeartbeatOutcome:
        fate = _FATES.get(code)
        if fate is None:
            raise KafkaError(code, f"group {self.group_id!r}")
        if fate is HeartbeatOutcome.REJOIN:
            self.expire(forget_identity=code is ErrorCode.UNKNOWN_MEMBER_ID)
            if code is ErrorCode.ILLEGAL_GENERATION:
                self.forget_generation()
        return fate


def by_topic(partitions: Sequence[TopicPartition]) -> list[TopicPartitions]:
    """Group partitions by topic, as in the embedded protocol."""
    grouped: dict[str, list[int]] = {}
    for one in sorted(partitions):
        grouped.setdefault(one.topic, []).append(one.partition)
    return [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in grouped.items()]


def _view(row: JoinGroupResponseMember) -> MemberView:
    subscription = decode_subscription(bytes(row.metadata))
    owned = tuple(TopicPartition(one.topic, index) for one in subscription.owned_partitions for index in one.partitions)
    return MemberView(
        row.member_id,
        tuple(subscription.topics),
        owned,
        None if subscription.user_data is None else bytes(subscription.user_data),
        subscription.generation_id,
        row.group_instance_id,
        subscription.rack_id,
    )


def _encode(given: MemberAssignment, generations: Mapping[str, int]) -> bytes:
    known = json.dumps({"generations": dict(sorted(generations.items()))}).encode()
    row = ConsumerProtocolAssignment(
        assigned_partitions=by_topic(given.partitions), user_data=known if given.user_data is None else given.user_data
    )
    return encode_assignment(row, b"" if given.user_data is None else known)


def _generations(assignment: bytes, user_data: bytes | None) -> Mapping[str, int]:
    """Return the topic generations behind an assignment; none if another client implementation leads the group."""
    for written in (decode_generations(assignment), bytes(user_data or b"")):
        try:
            generations = json.loads(written).get("generations", {})
            return {str(topic): int(generation) for topic, generation in generations.items()}
        except (ValueError, AttributeError, TypeError):
            continue
    return {}
