"""One consumer group of the classic protocol as a machine: `apply(event, now_ms) -> effects`.

Here is what a group knows, how its members stay and leave, and who may commit; `joining` decides who becomes a member,
`rebalance` how a generation comes about, `group_state` has the table of states. A generation becomes Stable only after
the journal took its assignment, so that a coordinator that takes over knows every assignment that a member may act on.

Requests that must wait are kept as tickets in their member (`joining`, `syncing`), each answered exactly once.
Deadlines are data: `next_deadline` says when a `Tick` is due; nothing here reads a clock or draws by itself.

Source: KIP-62, KIP-345 (static members), KIP-394 (member ids), KIP-559, KIP-814; Kafka's GroupCoordinator.scala.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from anabranch.broker.coordinators import group_responses as responses
from anabranch.broker.coordinators import joining, rebalance
from anabranch.broker.coordinators.group_events import (
    Answer,
    Close,
    Disturbed,
    Effect,
    Event,
    Heartbeat,
    Join,
    Leave,
    Persist,
    Persisted,
    Replaced,
    Sync,
    Tick,
)
from anabranch.broker.coordinators.group_state import (
    COMPLETING,
    DEAD,
    EMPTY,
    LEGAL,
    PREPARING,
    STABLE,
    GroupLimits,
    GroupState,
)
from anabranch.broker.coordinators.members import Member, Members
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataMember, GroupMetadataValue

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


@dataclass(slots=True)
class Group:
    """One group. Create it Empty, or `restore` it from the journal."""

    group_id: str
    limits: GroupLimits
    rng: random.Random
    state: GroupState = EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    members: Members = field(default_factory=Members)
    subscriptions: tuple[bytes, ...] = ()
    """What the members of the generation said under its protocol."""
    state_since_ms: int = -1
    join_deadline_ms: int | None = None
    initial_delay_left_ms: int | None = None
    """Not None while the first join phase of an Empty group waits for company."""
    joined_meanwhile: bool = False
    sync_deadline_ms: int | None = None
    unsynced: set[str] = field(default_factory=set)
    """Members of the new generation that have not asked for their assignment yet."""
    proposed: dict[str, bytes] = field(default_factory=dict)
    """The leader's assignment while the journal takes it."""
    effects: list[Effect] = field(default_factory=list)
    """Of the event in work."""

    @classmethod
    def restore(
        cls, group_id: str, value: GroupMetadataValue, limits: GroupLimits, rng: random.Random, now_ms: int
    ) -> Group:
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
                    protocols=((value.protocol or "", row.subscription),),
                    assignment=row.assignment,
                    session_deadline_ms=now_ms + row.session_timeout,
                )
            )
        if len(group.members):
            group.state, group.protocol = STABLE, value.protocol
            group.members.leader_id = value.leader if value.leader in group.members.by_id else group.members.leader_id
            group.subscriptions = tuple(row.subscription for row in value.members)
        if len(group.members) > limits.size_max:  # the limit was lowered: the last ones to rejoin stay outside
            rebalance.start(group, now_ms)
            group.effects.clear()  # nobody waits yet
        return group

    def apply(self, event: Event, now_ms: int) -> list[Effect]:
        """React to one event. A refusal is an answer, not an exception."""
        try:
            self._dispatch(event, now_ms)
        except KafkaError as error:
            self.effects.append(responses.refusal(event, error.code))
        effects, self.effects = self.effects, []
        return effects

    def _dispatch(self, event: Event, now_ms: int) -> None:
        match event:
            case Heartbeat():
                self._heartbeat(event, now_ms)
            case Join():
                joining.join(self, event, now_ms)
            case Sync():
                rebalance.sync(self, event, now_ms)
            case Leave():
                self._leave(event, now_ms)
            case Persisted(answer=Answer()):
                joining.replaced(self, event, now_ms)
            case Persisted():
                rebalance.persisted(self, event, now_ms)
            case Tick():
                self._tick(now_ms)
            case Close():
                self._close(event, now_ms)
            case _:
                assert_never(event)

    def next_deadline(self) -> int | None:
        """When a `Tick` is due; None when nothing can time out."""
        deadlines = [member.session_deadline_ms for member in self.members if member.session_deadline_ms is not None]
        deadlines += self.members.pending.values()
        deadlines += [due for due in (self.join_deadline_ms, self.sync_deadline_ms) if due is not None]
        return min(deadlines, default=None)

    # --- staying and leaving -------------------------------------------------------------------------------------

    def _heartbeat(self, event: Heartbeat, now_ms: int) -> None:
        request = event.request
        self.check_alive()
        member = self.checked(request.member_id, request.group_instance_id, request.generation_id)
        self.touch(member, now_ms)
        preparing = self.state is PREPARING
        self.answer(event, responses.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE))

    def _leave(self, event: Leave, now_ms: int) -> None:
        self.check_alive()
        size_before = len(self.members)
        rows = [(one, self._leave_one(one.member_id, one.group_instance_id)) for one in responses.leaving(event)]
        self.answer(event, responses.left(event, rows))
        rebalance.continue_after_loss(self, size_before, now_ms)

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id in self.members.pending:
            del self.members.pending[member_id]
            return ErrorCode.NONE
        if member_id == "" and instance_id is not None:
            member_id = self.members.static.get(instance_id, "")  # an administrator names the instance only
        try:
            self.drop(self.members.check(member_id, instance_id))
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def authorize_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Raise unless the sender may commit: a member of this generation, or anybody while the group is Empty."""
        self.check_alive()
        if generation < 0 and self.state is EMPTY:
            return
        member = self.checked(member_id, instance_id, generation)
        if self.state is COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.touch(member, now_ms)

    def authorize_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise unless a transaction may commit offsets for the sender.

        Before KIP-447 (v0 to v2) producers could not say for which member they commit: those are believed.
        """
        self.check_alive()
        if generation < 0 and self.state is EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.checked(member_id, instance_id, generation)

    def authorize_watch(self, member_id: str, generation: int) -> None:
        """Raise unless the sender may wait for progress: a member under a standing assignment, or anybody if Empty."""
        self.check_alive()
        if member_id == "" and self.state is EMPTY:
            return
        self.checked(member_id, None, generation)
        if self.state is not STABLE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _tick(self, now_ms: int) -> None:
        size_before = len(self.members)
        for member_id in [one for one, due in self.members.pending.items() if due <= now_ms]:
            del self.members.pending[member_id]
        for member in [one for one in self.members if _due(one.session_deadline_ms, now_ms)]:
            self.drop(member)
        if _due(self.sync_deadline_ms, now_ms):
            self.sync_deadline_ms = None
            for member_id in sorted(self.unsynced):
                self.drop(self.members.by_id[member_id])
        rebalance.continue_after_loss(self, size_before, now_ms)
        if self.state is PREPARING and self.initial_delay_left_ms is None and _due(self.join_deadline_ms, now_ms):
            rebalance.end_join_phase(self, now_ms)

    def _close(self, event: Close, now_ms: int) -> None:
        for member in self.members:
            self.release(member, event.error)
            member.session_deadline_ms = None
        self.join_deadline_ms = self.sync_deadline_ms = self.initial_delay_left_ms = None
        self.members.pending.clear()
        if self.state is not DEAD:
            self.move(DEAD, now_ms)
            self.effects.append(Disturbed(event.error))

    # --- what the phases are made of -----------------------------------------------------------------------------

    def check_alive(self) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the group is no more: whoever asks looks for it again."""
        if self.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def checked(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """The member of the current generation that a sender says it is. Raises KafkaError."""
        member = self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, current is {self.generation}")
        return member

    def touch(self, member: Member, now_ms: int) -> None:
        """Begin the member's session anew. While it is parked it has none."""
        if member.joining is None and member.syncing is None:
            member.session_deadline_ms = now_ms + member.session_timeout_ms

    def drop(self, member: Member) -> None:
        """Let a member go; what it waits for is refused, and it has to begin anew."""
        if member.joining is not None:
            self.answer(
                member.joining, responses.join_refusal(member.joining, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
            )
            member.joining = None
        self.release(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        self.unsynced.discard(member.member_id)

    def release(self, member: Member, error: ErrorCode) -> None:
        """Answer whatever the member still waits for; it will not happen any more."""
        if member.joining is not None:
            self.effects.append(responses.refusal(member.joining, error))
            member.joining = None
        if member.syncing is not None:
            self.effects.append(Answer(member.syncing, responses.sync_refusal(error)))
            member.syncing = None

    def answer(self, event: Join | Sync | Heartbeat | Leave, response: Any) -> None:
        """Answer a request."""
        self.effects.append(Answer(event.ticket, response))

    def persist(
        self, assignments: Mapping[str, bytes], answer: Answer | None = None, replaced: Replaced | None = None
    ) -> None:
        """Store the group with these assignments; `answer` waits for that, and `replaced` comes back without it."""
        self.effects.append(Persist(self.generation, self.snapshot(assignments), answer, replaced))

    def move(self, to: GroupState, now_ms: int) -> None:
        """Change the state; a change that the table does not allow is a bug of ours."""
        assert to in LEGAL[self.state], f"{self.describe()}: {self.state.value} -> {to.value} is not a transition"
        self.state, self.state_since_ms = to, now_ms

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
                    subscription=member.metadata(self.protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members
            ],
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """What the generation consumes; None when that cannot be known: it may be anything."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        from anabranch.protocol.consumer_protocol import decode_subscription  # for administrators only

        try:
            return frozenset(topic for one in self.subscriptions for topic in decode_subscription(one).topics)
        except DecodeError:
            return None

    def describe(self) -> str:
        """One line for logs."""
        return (
            f"group {self.group_id} {self.state.value} generation={self.generation} protocol={self.protocol} "
            f"members={list(self.members.by_id)} pending={len(self.members.pending)}"
        )


def _due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
