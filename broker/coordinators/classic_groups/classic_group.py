"""The state of one classic group, and the methods that change it.

Only these methods change a `ClassicGroup`, and only while `group_machine.apply` handles an event. `joining` decides who
becomes a member, `rebalance` forms generations, `pending_responses` holds waiting requests. `group_state` has the table
of states, `members` the members, `rebalance_phases` the phases of a rebalance.

Invariant: a generation becomes Stable only after the journal has its assignment, so a new coordinator knows every
assignment that a member may act on. Source: KIP-62, KIP-345; Kafka's GroupMetadata.scala.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import field
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
from anabranch.protocol.values import slotted

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
KNOWN_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky", "RoundRobinAssigner"})
"""Assignors whose assignments the coordinator may reduce: Kafka's, and that of kafkajs. Streams and plug-ins may
compare them with user data."""
GATES_MARK: Final = b"KIP-253:gates"
"""The suffix of the stored subscription of a member that holds gates itself; only coordinators read it."""


@slotted
class ClassicGroup:
    """One classic group. It starts Empty or from a journal record (`from_journal`)."""

    group_id: str
    limits: GroupLimits
    rng: random.Random
    state: GroupState = EMPTY
    state_since_ms: int = -1
    """The date of the last change of the state: retention counts from it."""
    date_ms: int = -1
    """The date of the event that is being handled."""
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    """The assignor that the members of this generation chose, such as "range"."""
    members: Members = field(default_factory=Members)
    subscriptions: tuple[bytes, ...] | None = None
    """The subscriptions of this generation's members under its protocol; None before the first generation."""
    withheld: frozenset[tuple[str, int]] = frozenset()
    """Partitions of the current assignment that stock members were not given because their gates are closed."""
    join_phase: JoinPhase = field(default_factory=JoinPhase)
    assignment_phase: AssignmentPhase = field(default_factory=AssignmentPhase)
    _effects: list[Effect] = field(default_factory=list)

    @classmethod
    def from_journal(
        cls, group_id: str, value: GroupMetadataValue, limits: GroupLimits, rng: random.Random, now_ms: int
    ) -> ClassicGroup:
        """Restore a group from a journal record: Stable with its members, whose sessions restart, or Empty."""
        group = cls(group_id, limits, rng, generation=value.generation, protocol_type=value.protocol_type or None)
        group.state_since_ms = group.date_ms = value.current_state_timestamp
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

    # --- queries -------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """Return when a `Tick` is due, in milliseconds of the wall clock; None if nothing can time out."""
        deadlines = [member.session_deadline_ms for member in self.members if member.session_deadline_ms is not None]
        deadlines += self.members.pending.values()
        phases = (self.join_phase.deadline_ms, self.assignment_phase.deadline_ms)
        deadlines += [due for due in phases if due is not None]
        return min(deadlines, default=None)

    def check_alive(self) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the group is Dead; the client then finds its coordinator again."""
        if self.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def require_member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return the sender if it is a member of the current generation. Raises KafkaError."""
        member = self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, current is {self.generation}")
        return member

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the generation consumes; None if they are unknown."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.subscriptions is None:
            return None
        try:
            return frozenset(topic for one in self.subscriptions for topic in decode_subscription(one).topics)
        except DecodeError:
            return None

    @property
    def gated_by_broker(self) -> bool:
        """Whether some member holds no gates and its assignment may be reduced."""
        known = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.protocol in KNOWN_ASSIGNORS
        return known and not all(member.holds_gates for member in self.members)

    def snapshot(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """Return the journal's value for the group with these assignments."""
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
        """Format the group for logs, on one line."""
        return (
            f"group {self.group_id} {self.state.value} generation={self.generation} protocol={self.protocol} "
            f"members={list(self.members.by_id)} pending={len(self.members.pending)}"
        )

    # --- transitions ---------------------------------------------------------------------------------------------

    def note_date(self, date_ms: int) -> None:
        """Note the date of the next event."""
        self.date_ms = date_ms

    def move(self, to: GroupState) -> None:
        """Change the state. An illegal transition fails an assertion."""
        assert to in LEGAL[self.state], f"{self.describe()}: {self.state.value} -> {to.value} is not a transition"
        self.state, self.state_since_ms = to, self.date_ms

    def add_member(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one sets the protocol type."""
        if not len(self.members):
            self.protocol_type = protocol_type
        self.members.add(member)

    def begin_generation(self) -> None:
        """Start the next generation with the current members, possibly none, and the protocol that they choose."""
        self.join_phase.end()
        self.generation += 1
        self.protocol = self.members.choose_protocol() if len(self.members) else None
        self.subscriptions = tuple(member.metadata(self.protocol) for member in self.members)

    def become_stable(self) -> None:
        """Put the proposed assignment in force after the journal has stored it."""
        accepted = self.assignment_phase.accept()
        for member in self.members:
            member.assignment = accepted.get(member.member_id, b"")
        self.move(STABLE)

    def withhold(self, partitions: Collection[tuple[str, int]]) -> None:
        """Record partitions of the current assignment that stock members are not given."""
        self.withheld |= frozenset(partitions)

    def withhold_nothing(self) -> None:
        """Clear the withheld partitions, because no assignment is in force."""
        self.withheld = frozenset()

    def close(self) -> None:
        """Make the group Dead and cancel all deadlines."""
        for member in self.members:
            member.session_deadline_ms = None
        self.join_phase.end()
        self.assignment_phase.end()
        self.members.pending.clear()
        if self.state is not DEAD:
            self.move(DEAD)

    # --- effects -------------------------------------------------------------------------------------------------

    def answer(self, ticket: Ticket, response: Any) -> None:
        """Add the effect that answers a request."""
        self._effects.append(Answer(ticket, response))

    def require_rebalance(self, error: ErrorCode) -> None:
        """Add the effect that ends the current assignment."""
        self._effects.append(RebalanceRequired(error))

    def persist(
        self, assignments: Mapping[str, bytes], answer: Answer | None = None, replaced: Replaced | None = None
    ) -> None:
        """Add the effect that stores the group; `answer` is sent afterwards, `replaced` is restored on failure."""
        self._effects.append(Persist(self.generation, self.snapshot(assignments), answer, replaced))

    def add_verdict(self, error: ErrorCode, reason: str = "") -> None:
        """Add the verdict on a `Commit`, `Observe` or `Delete`."""
        self._effects.append(Verdict(error, reason))

    def take_effects(self) -> list[Effect]:
        """Return and clear the effects collected since the last call."""
        effects, self._effects = self._effects, []
        return effects
