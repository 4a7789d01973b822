"""Drives one group state machine manually: tickets are numbers, the journal is a list, time is a variable."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import (
    Answer,
    Close,
    Commit,
    Event,
    Heartbeat,
    Join,
    Leave,
    Observe,
    Persist,
    Persisted,
    RebalanceRequired,
    Sync,
    Verdict,
)
from anabranch.broker.coordinators.classic_groups.group_events import Tick as TickEvent
from anabranch.broker.coordinators.classic_groups.group_machine import apply
from anabranch.broker.coordinators.classic_groups.group_state import STABLE, GroupLimits
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from anabranch.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def new_group(**limits: int) -> ClassicGroup:
    return ClassicGroup("g", GroupLimits(**limits), random.Random(7))


@dataclass
class Driver:
    group: ClassicGroup = field(default_factory=new_group)
    now_ms: int = 1_000
    answers: dict[int, Any] = field(default_factory=dict)
    persists: list[Persist] = field(default_factory=list)
    disturbed: int = 0
    verdict: ErrorCode = ErrorCode.NONE
    """What the last commit or observer was told."""
    _ticket: int = 0

    def apply(self, event: Event) -> None:
        for effect in apply(self.group, event, self.now_ms):
            match effect:
                case Answer(ticket=ticket, response=response):
                    assert ticket not in self.answers, f"ticket {ticket} was answered twice"
                    self.answers[ticket] = response
                case Persist():
                    self.persists.append(effect)
                case RebalanceRequired():
                    self.disturbed += 1
                case Verdict(error=error):
                    self.verdict = error

    def ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        version: int = 9,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        client_id: str = "client",
        holds_gates: bool = False,
    ) -> int:
        ticket = self.ticket()
        rows = [
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in (protocols if protocols is not None else {"range": b"m"}).items()
        ]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=-1 if version == 0 else REBALANCE_MS,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=rows,
            holds_gates=holds_gates,
        )
        self.apply(Join(ticket=ticket, request=request, version=version, client_id=client_id, client_host="/1.2.3.4"))
        return ticket

    def draw_id(self, **arguments: Any) -> str:
        """The first half of a dynamic join: a member id to come back with."""
        response = self.answers[self.join(**arguments)]
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id: str = response.member_id
        return member_id

    def sync(
        self, member_id: str, assignments: dict[str, bytes] | None = None, *, generation: int | None = None, **more: Any
    ) -> int:
        ticket = self.ticket()
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=given)
                for one, given in (assignments or {}).items()
            ],
            **more,
        )
        self.apply(Sync(ticket=ticket, request=request))
        return ticket

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        ticket = self.ticket()
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        self.apply(Heartbeat(ticket=ticket, request=request))
        return ErrorCode(self.answers[ticket].error_code)

    def leave(self, *members: tuple[str, str | None], version: int = 5) -> Any:
        ticket = self.ticket()
        rows = [MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in members]
        request = LeaveGroupRequest(group_id="g", member_id=members[0][0] if version < 3 else "", members=rows)
        self.apply(Leave(ticket=ticket, request=request, version=version))
        return self.answers[ticket]

    def commit(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        self.apply(Commit(member_id=member_id, instance_id=instance_id, generation=generation))
        return self.verdict

    def observe(self, member_id: str, generation: int) -> ErrorCode:
        self.apply(Observe(member_id=member_id, generation=generation))
        return self.verdict

    def persisted(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The journal answers the oldest write."""
        effect = self.persists.pop(0)
        self.apply(Persisted(generation=effect.generation, error=error, answer=effect.answer, replaced=effect.replaced))

    def close(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        self.apply(Close(error))

    def advance(self, ms: int) -> None:
        """Let time pass, ticking at every deadline on the way."""
        end_ms = self.now_ms + ms
        while (due_ms := self.group.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.apply(TickEvent())
        self.now_ms = end_ms

    def stable(self, count: int, **arguments: Any) -> list[str]:
        """A Stable group of `count` dynamic members, the leader first."""
        ids: list[str] = []
        for _ in range(count):
            ids.append(self.draw_id(**arguments))
            tickets = [self.join(one, **arguments) for one in reversed(ids)]  # the newcomer first: it starts the round
            assert {self.answers[ticket].generation_id for ticket in tickets} == {self.group.generation}
        syncs = [self.sync(one, {each: each.encode() for each in ids} if one == ids[0] else None) for one in ids]
        while self.persists:
            self.persisted()
        assert [self.answers[one].assignment for one in syncs] == [one.encode() for one in ids]
        return ids


def static_pair(drive: Driver) -> tuple[str, str]:
    """Two static members, `a` leading, Stable."""
    first = drive.answers[drive.join(instance_id="a")].member_id
    second = drive.join(instance_id="b")
    drive.join(first, instance_id="a")
    b_id = drive.answers[second].member_id
    drive.sync(first, {first: b"A", b_id: b"B"})
    drive.persisted()
    drive.sync(b_id)
    assert drive.group.state is STABLE
    return first, b_id
