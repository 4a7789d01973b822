"""What the coordinator knows of one consumer group of the classic protocol, and the moves that this may make.

`ClassicGroup` is changed by its own methods only, and only while `group_machine.apply` handles an event: `joining`
decides who becomes a member, `rebalance` how a generation comes about, `parking` who is answered. `group_state` has the
table of states, `members` the members, `group_phases` the waits of a rebalance.

Invariant: a generation becomes Stable only after the journal took its assignment, so that a coordinator that takes over
knows every assignment that a member may act on. Source: KIP-62, KIP-345; Kafka's GroupMetadata.scala.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.broker.coordinators.classic_groups.group_events import (
    Answer,
    Effect,
    Persist,
    RebalanceRequired,
    Replaced,
    Ticket,
    Verdict,
)
from anabranch.broker.coordinators.classic_groups.group_state import DEAD, EMPTY, LEGAL, STABLE, GroupLimits, GroupState
from anabranch.broker.coordinators.classic_groups.members import Member, Members
from anabranch.broker.coordinators.classic_groups.rebalance_phases import AssignmentPhase, JoinPhase
from anabranch.protocol.consumer_protocol import decode_subscription
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataMember, GroupMetadataValue

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
KAFKAS_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Their assignments may be made smaller: nobody compares them with user data, as Streams does, or plug-ins might."""
GATES_MARK: Final = b"KIP-253:gates"
"""Behind the stored subscription of a member that holds gates itself; only coordinators read it."""


@dataclass(slots=True)
class ClassicGroup:
    """One group. It begins Empty, or as a journal record tells it (`from_journal`)."""

    group_id: str
    limits: GroupLimits
    rng: random.Random
    state: GroupState = EMPTY
    state_since_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    """The protocol that the members of this generation chose, such as "range"."""
    members: Members = field(default_factory=Members)
    subscriptions: tuple[bytes, ...] = ()
    """What the members of the generation said under its protocol."""
    withheld: frozenset[tuple[str, int]] = frozenset()
    """Partitions of the present assignment that members without gates were not given: something comes before them."""
    join_phase: JoinPhase = field(default_factory=JoinPhase)
    assignment_phase: AssignmentPhase = field(default_factory=AssignmentPhase)
    _effects: list[Effect] = field(default_factory=list)
    """Of the event in work."""

    @classmethod
    def from_journal(
        cls, group_id: str, value: GroupMetadataValue, limits: GroupLimits, rng: random.Random, now_ms: int
    ) -> ClassicGroup:
        """The group as a journal record tells it: Stable with its members, whose sessions start anew, or Empty."""
        group = cls(group_id, limits, rng, generation=value.generation, protocol_type=value.protocol_type or None)
        group.state_since_ms = value.current_state_timestamp
        for row in value.members:
            group.members.add(
                Member(
                    member_id=row.member_id,
                    instance_id=row.group_instance_id,
                    client_id=row.client_id,
                    client_host=row.client_host,
                    session_timeout_ms=row.session_timeout,
                    rebalance_timeout_ms=row.rebalance_timeout if row.rebalance_timeout >= 0 else row.session_timeout,
                    protocols=((value.protocol or "", row.subscription.removesuffix(GATES_MARK)),),
                    assignment=row.assignment,
                    holds_gates=row.subscription.endswith(GATES_MARK),
                    session_deadline_ms=now_ms + row.session_timeout,
                )
            )
        if len(group.members):
            group.state, group.protocol = STABLE, value.protocol
            group.members.leader_id = value.leader if value.leader in group.members.by_id else group.members.leader_id
            group.subscriptions = tuple(member.metadata(value.protocol) for member in group.members)
        return group

    # --- what it is asked ----------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When a `Tick` is due, in milliseconds of the wall clock; None when nothing can time out."""
        deadlines = [member.session_deadline_ms for member in self.members if member.session_deadline_ms is not None]
        deadlines += self.members.pending.values()
        phases = (self.join_phase.deadline_ms, self.assignment_phase.deadline_ms)
        deadlines += [due for due in phases if due is not None]
        return min(deadlines, default=None)

    def check_alive(self) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the group is no more: the client looks for its coordinator again."""
        if self.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def checked(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """The member of the current generation that a sender says it is. Raises KafkaError."""
        member = self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, current is {self.generation}")
        return member

    def subscribed_topics(self) -> frozenset[str] | None:
        """What the generation consumes; None when that cannot be known: it may be anything."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        try:
            return frozenset(topic for one in self.subscriptions for topic in decode_subscription(one).topics)
        except DecodeError:
            return None

    @property
    def gated_by_broker(self) -> bool:
        """Whether some member holds no gates, and what it is assigned may be made smaller."""
        known = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.protocol in KAFKAS_ASSIGNORS
        return known and not all(member.holds_gates for member in self.members)

    def snapshot(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """The group as the journal keeps it, with these assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.members.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=[
                GroupMetadataMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol) + (GATES_MARK if member.holds_gates else b""),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members
            ],
        )

    def describe(self) -> str:
        """One line for logs."""
        return (
            f"group {self.group_id} {self.state.value} generation={self.generation} protocol={self.protocol} "
            f"members={list(self.members.by_id)} pending={len(self.members.pending)}"
        )

    # --- the moves -----------------------------------------------------------------------------------------------

    def move(self, to: GroupState, now_ms: int) -> None:
        """Change the state; a change that the table does not allow is a bug of ours."""
        assert to in LEGAL[self.state], f"{self.describe()}: {self.state.value} -> {to.value} is not a transition"
        self.state, self.state_since_ms = to, now_ms

    def add_member(self, member: Member, protocol_type: str) -> None:
        """A new member; the first one says which kind of group this is."""
        if not len(self.members):
            self.protocol_type = protocol_type
        self.members.add(member)

    def begin_generation(self) -> None:
        """The present members, perhaps none, are the next generation, under the protocol that they choose."""
        self.join_phase.end()
        self.generation += 1
        self.protocol = self.members.choose_protocol() if len(self.members) else None
        self.subscriptions = tuple(member.metadata(self.protocol) for member in self.members)

    def become_stable(self, now_ms: int) -> None:
        """The journal took the proposed assignment: every member has it, or can fetch it."""
        accepted = self.assignment_phase.accept()
        for member in self.members:
            member.assignment = accepted.get(member.member_id, b"")
        self.move(STABLE, now_ms)

    def withhold(self, partitions: Collection[tuple[str, int]]) -> None:
        """Members without gates are not given these of the present assignment."""
        self.withheld |= frozenset(partitions)

    def withhold_nothing(self) -> None:
        """There is no assignment of which anything could be withheld."""
        self.withheld = frozenset()

    def close(self, now_ms: int) -> None:
        """Nothing can time out any more; the group is Dead."""
        for member in self.members:
            member.session_deadline_ms = None
        self.join_phase.end()
        self.assignment_phase.end()
        self.members.pending.clear()
        if self.state is not DEAD:
            self.move(DEAD, now_ms)

    # --- the effects ---------------------------------------------------------------------------------------------

    def answer(self, ticket: Ticket, response: Any) -> None:
        """Answer a request."""
        self._effects.append(Answer(ticket, response))

    def require_rebalance(self, error: ErrorCode) -> None:
        """The assignment is no longer in force."""
        self._effects.append(RebalanceRequired(error))

    def persist(
        self, assignments: Mapping[str, bytes], answer: Answer | None = None, replaced: Replaced | None = None
    ) -> None:
        """Store the group with these assignments; `answer` waits for that, and `replaced` comes back without it."""
        self._effects.append(Persist(self.generation, self.snapshot(assignments), answer, replaced))

    def add_verdict(self, error: ErrorCode, reason: str = "") -> None:
        """Allow, or refuse, what was asked by `Commit`, `Observe` or `Delete`."""
        self._effects.append(Verdict(error, reason))

    def take_effects(self) -> list[Effect]:
        """The effects that were decided since the last call."""
        effects, self._effects = self._effects, []
        return effects
