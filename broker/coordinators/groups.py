"""One consumer group of the classic protocol as a machine: `apply(event, now_ms) -> effects`.

    Empty                no members; offsets may be committed by anybody
    PreparingRebalance   the join phase: waiting for every known member to (re)join, or for the rebalance timeout
    CompletingRebalance  a generation has begun; its leader computes the assignment
    Stable               everybody has, or can fetch, an assignment
    Dead                 deleted, or coordinated elsewhere

A generation is born when the join phase ends and becomes Stable only after the journal took its assignment, so that a
coordinator that takes over knows every assignment that a member may act on. Requests that must wait are kept as tickets
in their member (`joining`, `syncing`), each answered exactly once. Deadlines are data: `next_deadline` says when a
`Tick` is due; nothing here reads a clock or draws randomness by itself.

Source: KIP-62, KIP-345 (static members), KIP-394 (member ids), KIP-559, KIP-814; Kafka's GroupCoordinator.scala.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from broker.coordinators import answers
from broker.coordinators.events import (
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
    Sync,
    Tick,
)
from broker.coordinators.members import Member, Members
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import GroupMetadataMember, GroupMetadataValue

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a first join may be parked before its member is given up (kafka NewMemberJoinTimeoutMs)."""

NO_GENERATION: Final = -1


class GroupState(enum.Enum):
    """The value is the name on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

LEGAL: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    # from       to
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What the broker allows its groups."""

    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1800000
    size_max: int = 2147483647
    initial_rebalance_delay_ms: int = 0


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
    state_since_ms: int = -1
    _join_deadline_ms: int | None = None
    _initial_delay_left_ms: int | None = None
    """Not None while the first join phase of an Empty group waits for company."""
    _joined_meanwhile: bool = False
    _sync_deadline_ms: int | None = None
    _unsynced: set[str] = field(default_factory=set)
    _proposed: dict[str, bytes] = field(default_factory=dict)
    _effects: list[Effect] = field(default_factory=list)

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
        return group

    def apply(self, event: Event, now_ms: int) -> list[Effect]:
        """React to one event. A refusal is an answer, not an exception."""
        try:
            self._dispatch(event, now_ms)
        except KafkaError as error:
            self._effects.append(answers.refusal(event, error.code))
        effects, self._effects = self._effects, []
        return effects

    def _dispatch(self, event: Event, now_ms: int) -> None:
        match event:
            case Heartbeat():
                self._heartbeat(event, now_ms)
            case Join():
                self._join(event, now_ms)
            case Sync():
                self._sync(event, now_ms)
            case Leave():
                self._leave(event, now_ms)
            case Persisted():
                self._persisted(event, now_ms)
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
        deadlines += [due for due in (self._join_deadline_ms, self._sync_deadline_ms) if due is not None]
        return min(deadlines, default=None)

    # --- joining -------------------------------------------------------------------------------------------------

    def _join(self, event: Join, now_ms: int) -> None:
        request = event.request
        limits = self.limits
        if not limits.session_timeout_ms_min <= request.session_timeout_ms <= limits.session_timeout_ms_max:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if not self._has_room(request.member_id):
            self.members.pending.pop(request.member_id, None)
            self._answer(event, answers.join_refusal(event, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=""))
            return
        self._alive()
        if not self._speaks(event):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id == "":
            self._join_unknown(event, now_ms)
        elif request.member_id in self.members.pending:
            self._admit(event, request.member_id, now_ms)
        else:
            self._rejoin(event, now_ms)
        self._end_join_phase_if_complete(now_ms)

    def _has_room(self, member_id: str) -> bool:
        member = self.members.by_id.get(member_id)
        if self.state in (EMPTY, DEAD):
            return True
        if self.state is PREPARING:
            waiting = member is not None and member.joining is not None
            return waiting or self.members.joining_count < self.limits.size_max
        return member is not None or len(self.members) < self.limits.size_max

    def _speaks(self, event: Join) -> bool:
        """Whether the client shares a protocol with all members; an Empty group takes any."""
        names = {protocol.name for protocol in event.request.protocols}
        if self.state is EMPTY or not len(self.members):
            return bool(event.request.protocol_type and names)
        return event.request.protocol_type == self.protocol_type and not names.isdisjoint(
            self.members.common_protocols()
        )

    def _join_unknown(self, event: Join, now_ms: int) -> None:
        instance_id = event.request.group_instance_id
        member_id = f"{instance_id or event.client_id}-{self._draw_uuid()}"
        if instance_id is not None:
            if instance_id in self.members.static:
                self._replace_static(event, member_id, now_ms)
            else:
                self._admit(event, member_id, now_ms)
        elif event.version >= 4:
            # KIP-394: an id handed out first, so that a lost answer does not leave a member that nobody is.
            self.members.pending[member_id] = now_ms + event.request.session_timeout_ms
            self._answer(event, answers.join_refusal(event, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        else:
            self._admit(event, member_id, now_ms)

    def _draw_uuid(self) -> str:
        import uuid  # with what it imports in turn, too dear for a broker without groups

        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def _admit(self, event: Join, member_id: str, now_ms: int) -> None:
        if not len(self.members):
            self.protocol_type = event.request.protocol_type
        member = Member(
            member_id=member_id,
            instance_id=event.request.group_instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            rebalance_timeout_ms=0,
            session_timeout_ms=0,
            protocols=(),
            is_new=True,
        )
        self.members.add(member)
        self._park_join(member, event, now_ms)
        self._joined_meanwhile = self.state is PREPARING
        self._start_rebalance(now_ms)

    def _rejoin(self, event: Join, now_ms: int) -> None:
        request = event.request
        member = self.members.check(request.member_id, request.group_instance_id)
        unchanged = member.protocols == answers.protocols_of(request)
        if self.state is COMPLETING and unchanged:
            self._answer_join(member, event)  # the answer to its last join got lost
            self._touch(member, now_ms)
        elif self.state is STABLE and unchanged and member.member_id != self.members.leader_id:
            self._answer_join(member, event)
            self._touch(member, now_ms)
        elif self.state in (PREPARING, COMPLETING, STABLE):
            self._park_join(member, event, now_ms)
            self._start_rebalance(now_ms)
        else:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def _replace_static(self, event: Join, member_id: str, now_ms: int) -> None:
        """A static member came back without its id. If it wants what it had, nobody else has to notice (KIP-345)."""
        old_leader = self.members.leader_id or ""
        old_id = self.members.static[event.request.group_instance_id or ""]
        member = self.members.by_id[old_id]
        self._release(member, ErrorCode.FENCED_INSTANCE_ID)
        if old_id in self._unsynced:
            self._unsynced = (self._unsynced - {old_id}) | {member_id}
        self.members.replace_static(member, member_id)
        before = member.metadata(self.protocol)
        self._adopt(member, event)
        same = member.metadata(self.protocol) == before and self.members.choose_protocol() == self.protocol
        if self.state is STABLE and same:
            self._touch(member, now_ms)
            response = answers.joined_without_rebalance(self, member, event, old_leader)
            self._persist(
                now_ms, {one.member_id: one.assignment for one in self.members}, Answer(event.ticket, response)
            )
            return
        self._park_join(member, event, now_ms)
        self._start_rebalance(now_ms)

    def _adopt(self, member: Member, event: Join) -> None:
        request = event.request
        member.client_id, member.client_host = event.client_id, event.client_host
        member.session_timeout_ms = request.session_timeout_ms
        known = request.rebalance_timeout_ms >= 0
        member.rebalance_timeout_ms = request.rebalance_timeout_ms if known else request.session_timeout_ms  # v0
        member.protocols = answers.protocols_of(request)

    def _park_join(self, member: Member, event: Join, now_ms: int) -> None:
        self._release(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._adopt(member, event)
        member.joining = event
        member.session_deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else None

    # --- the join phase ------------------------------------------------------------------------------------------

    def _start_rebalance(self, now_ms: int) -> None:
        if self.state is PREPARING:
            return
        if self.state is COMPLETING:
            self._answer_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
            for member in self.members:
                member.assignment = b""
        self._sync_deadline_ms = None
        self._unsynced.clear()
        self._proposed.clear()
        rebalance_timeout_ms = self.members.rebalance_timeout_ms
        if self.state is EMPTY:
            delay_ms = self.limits.initial_rebalance_delay_ms
            self._initial_delay_left_ms = max(rebalance_timeout_ms - delay_ms, 0)
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._join_deadline_ms = now_ms + rebalance_timeout_ms
        self._joined_meanwhile = False
        self._move(PREPARING, now_ms)
        self._effects.append(Disturbed(ErrorCode.REBALANCE_IN_PROGRESS))
        self._end_join_phase_if_complete(now_ms)

    def _end_join_phase_if_complete(self, now_ms: int) -> None:
        """End the phase once everybody is there. The very first one lasts until its delay is over."""
        if self.state is not PREPARING:
            return
        if self._initial_delay_left_ms is not None:
            if self._join_deadline_ms is not None and now_ms >= self._join_deadline_ms:
                self._end_initial_delay(now_ms)
        elif self.members.joining_count == len(self.members) and not self.members.pending:
            self._end_join_phase(now_ms)

    def _end_initial_delay(self, now_ms: int) -> None:
        left_ms = self._initial_delay_left_ms or 0
        if self._joined_meanwhile and left_ms > 0:
            delay_ms = min(self.limits.initial_rebalance_delay_ms, left_ms)
            self._joined_meanwhile = False
            self._initial_delay_left_ms = left_ms - delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            return
        self._initial_delay_left_ms = None
        self._end_join_phase(now_ms)

    def _end_join_phase(self, now_ms: int) -> None:
        for member in [one for one in self.members if one.joining is None and one.instance_id is None]:
            self._drop(member)
        if len(self.members) and not self._elect_joined_leader():
            self._join_deadline_ms = now_ms + self.members.rebalance_timeout_ms  # only silent static members are left
            return
        self._initial_delay_left_ms = self._join_deadline_ms = None
        self.generation += 1
        if not len(self.members):
            self.protocol = None
            self._move(EMPTY, now_ms)
            self._persist(now_ms, {})
            return
        self.protocol = self.members.choose_protocol()
        self._move(COMPLETING, now_ms)
        self._sync_deadline_ms = now_ms + self.members.rebalance_timeout_ms
        self._unsynced = set(self.members.by_id)
        for member in self.members:
            member.is_new = False
            if member.joining is not None:
                event, member.joining = member.joining, None
                self._answer_join(member, event)
                self._touch(member, now_ms)

    def _elect_joined_leader(self) -> bool:
        leader = self.members.by_id.get(self.members.leader_id or "")
        if leader is None or leader.joining is None:
            joined = next((member for member in self.members if member.joining is not None), None)
            if joined is None:
                return False
            self.members.leader_id = joined.member_id
        return True

    def _answer_join(self, member: Member, event: Join) -> None:
        self._answer(event, answers.joined(self, member))

    # --- syncing -------------------------------------------------------------------------------------------------

    def _sync(self, event: Sync, now_ms: int) -> None:
        request = event.request
        self._alive()
        member = self._checked(request.member_id, request.group_instance_id, request.generation_id)
        if request.protocol_type not in (None, self.protocol_type) or request.protocol_name not in (
            None,
            self.protocol,
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is PREPARING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._synced(member)
        if self.state is STABLE:
            self._touch(member, now_ms)
            self._answer(event, answers.synced(self, member))
            return
        assert self.state is COMPLETING, f"{self.describe()}: a member in a group without members"
        self._release(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.syncing = event.ticket
        member.session_deadline_ms = None
        if member.member_id == self.members.leader_id:
            given = {row.member_id: bytes(row.assignment) for row in request.assignments}
            self._proposed = {member_id: given.get(member_id, b"") for member_id in self.members.by_id}
            self._persist(now_ms, self._proposed)

    def _synced(self, member: Member) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def _persisted(self, event: Persisted, now_ms: int) -> None:
        if event.answer is not None:
            refused = event.error is not ErrorCode.NONE
            response = answers.with_error(event.answer.response, event.error) if refused else event.answer.response
            self._effects.append(Answer(event.answer.ticket, response))
            return
        if self.state is not COMPLETING or event.generation != self.generation or not self._proposed:
            return  # the group has moved on; a newer record follows
        if event.error is not ErrorCode.NONE:
            self._answer_syncs(event.error, now_ms)
            self._start_rebalance(now_ms)
            return
        for member in self.members:
            member.assignment = self._proposed.get(member.member_id, b"")
        self._proposed = {}
        self._move(STABLE, now_ms)
        self._answer_syncs(ErrorCode.NONE, now_ms)

    def _answer_syncs(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.members:
            if member.syncing is not None:
                ticket, member.syncing = member.syncing, None
                refused = error is not ErrorCode.NONE
                response = answers.sync_refusal(error) if refused else answers.synced(self, member)
                self._effects.append(Answer(ticket, response))
                self._touch(member, now_ms)

    # --- staying and leaving -------------------------------------------------------------------------------------

    def _heartbeat(self, event: Heartbeat, now_ms: int) -> None:
        request = event.request
        self._alive()
        member = self._checked(request.member_id, request.group_instance_id, request.generation_id)
        self._touch(member, now_ms)
        preparing = self.state is PREPARING
        self._answer(event, answers.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE))

    def _leave(self, event: Leave, now_ms: int) -> None:
        self._alive()
        size_before = len(self.members)
        rows = [(one, self._leave_one(one.member_id, one.group_instance_id)) for one in answers.leaving(event)]
        self._answer(event, answers.left(event, rows))
        self._continue_after_loss(size_before, now_ms)

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id in self.members.pending:
            del self.members.pending[member_id]
            return ErrorCode.NONE
        if member_id == "" and instance_id is not None:
            member_id = self.members.static.get(instance_id, "")  # an administrator names the instance only
        try:
            self._drop(self.members.check(member_id, instance_id))
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def authorize_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Raise unless the sender may commit: a member of this generation, or anybody while the group is Empty."""
        self._alive()
        if generation < 0 and self.state is EMPTY:
            return
        member = self._checked(member_id, instance_id, generation)
        if self.state is COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._touch(member, now_ms)

    def authorize_watch(self, member_id: str, generation: int) -> None:
        """Raise unless the sender may wait for progress: a member under a standing assignment, or anybody if Empty."""
        self._alive()
        if member_id == "" and self.state is EMPTY:
            return
        self._checked(member_id, None, generation)
        if self.state is not STABLE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _continue_after_loss(self, size_before: int, now_ms: int) -> None:
        """Members or pending ids are gone: divide their work anew, or end the join phase that waited for them."""
        if len(self.members) < size_before and self.state in (COMPLETING, STABLE):
            self._start_rebalance(now_ms)
        self._end_join_phase_if_complete(now_ms)

    def _tick(self, now_ms: int) -> None:
        size_before = len(self.members)
        for member_id in [one for one, due in self.members.pending.items() if due <= now_ms]:
            del self.members.pending[member_id]
        for member in [one for one in self.members if _due(one.session_deadline_ms, now_ms)]:
            self._drop(member)
        if _due(self._sync_deadline_ms, now_ms):
            self._sync_deadline_ms = None
            for member_id in sorted(self._unsynced):
                self._drop(self.members.by_id[member_id])
        self._continue_after_loss(size_before, now_ms)
        if self.state is PREPARING and self._initial_delay_left_ms is None and _due(self._join_deadline_ms, now_ms):
            self._end_join_phase(now_ms)

    def _close(self, event: Close, now_ms: int) -> None:
        for member in self.members:
            self._release(member, event.error)
            member.session_deadline_ms = None
        self._join_deadline_ms = self._sync_deadline_ms = self._initial_delay_left_ms = None
        self.members.pending.clear()
        if self.state is not DEAD:
            self._move(DEAD, now_ms)
            self._effects.append(Disturbed(event.error))

    # --- leaves --------------------------------------------------------------------------------------------------

    def _alive(self) -> None:
        if self.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _checked(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, current is {self.generation}")
        return member

    def _touch(self, member: Member, now_ms: int) -> None:
        if member.joining is None and member.syncing is None:
            member.session_deadline_ms = now_ms + member.session_timeout_ms

    def _drop(self, member: Member) -> None:
        self._release(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        self._unsynced.discard(member.member_id)

    def _release(self, member: Member, error: ErrorCode) -> None:
        """Answer whatever the member still waits for; it will not happen any more."""
        if member.joining is not None:
            self._effects.append(answers.refusal(member.joining, error))
            member.joining = None
        if member.syncing is not None:
            self._effects.append(Answer(member.syncing, answers.sync_refusal(error)))
            member.syncing = None

    def _answer(self, event: Join | Sync | Heartbeat | Leave, response: Any) -> None:
        self._effects.append(Answer(event.ticket, response))

    def _persist(self, now_ms: int, assignments: Mapping[str, bytes], answer: Answer | None = None) -> None:
        self._effects.append(Persist(self.generation, self.snapshot(assignments), answer))

    def _move(self, to: GroupState, now_ms: int) -> None:
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

    def describe(self) -> str:
        """One line for logs."""
        return (
            f"group {self.group_id} {self.state.value} generation={self.generation} protocol={self.protocol} "
            f"members={list(self.members.by_id)} pending={len(self.members.pending)}"
        )


def _due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
