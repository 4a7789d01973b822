"""What a group waits for while a generation comes about: first for its members, then for their assignment.

`JoinPhase` says how long members may take to join, `AssignmentPhase` who has not asked for its assignment yet and what
the leader proposed. Both are deadlines and small sets: what follows from them is decided in `rebalance`.

Source: GroupCoordinator.scala of Kafka (DelayedJoin, InitialDelayedJoin, DelayedSync).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class JoinPhase:
    """Until when members may join. The first phase of an Empty group is delayed, so that newcomers find company."""

    deadline_ms: int | None = None
    """When the phase, or the present stretch of the initial delay, is over; None while no join phase is on."""
    delay_left_ms: int | None = None
    """By how much the initial delay may still be prolonged; None when it is over, or there was none."""
    others_joined: bool = False
    """Whether a new member joined in the present stretch of the initial delay."""

    @property
    def delayed(self) -> bool:
        """Whether the phase lasts until its initial delay is over, even if all known members have joined."""
        return self.delay_left_ms is not None

    def begin(self, now_ms: int, rebalance_timeout_ms: int) -> None:
        """Wait for all members, but no longer than the slowest of them asked for."""
        self.deadline_ms = now_ms + rebalance_timeout_ms
        self.others_joined = False

    def begin_delayed(self, now_ms: int, rebalance_timeout_ms: int, delay_ms: int) -> None:
        """Wait for `delay_ms`, even if all known members have joined before."""
        self.deadline_ms = now_ms + delay_ms
        self.delay_left_ms = max(rebalance_timeout_ms - delay_ms, 0)
        self.others_joined = False

    def note_others_joined(self) -> None:
        """A new member joined."""
        self.others_joined = True

    def prolong(self, now_ms: int, delay_ms: int) -> bool:
        """A stretch of the initial delay is over: begin another one if company came and there is time; says whether."""
        left_ms = self.delay_left_ms or 0
        if not self.others_joined or left_ms <= 0:
            self.delay_left_ms = None
            return False
        stretch_ms = min(delay_ms, left_ms)
        self.others_joined = False
        self.delay_left_ms = left_ms - stretch_ms
        self.deadline_ms = now_ms + stretch_ms
        return True

    def is_due(self, now_ms: int) -> bool:
        """Whether the time is up."""
        return self.deadline_ms is not None and self.deadline_ms <= now_ms

    def end(self) -> None:
        """The phase is over: the group waits for no member to join."""
        self.deadline_ms = self.delay_left_ms = None


@dataclass(slots=True)
class AssignmentPhase:
    """The members of a generation that have yet to ask for their assignment, and the assignment itself."""

    deadline_ms: int | None = None
    """When members that have not asked are dropped; None when all have asked, or no phase is on."""
    unsynced: set[str] = field(default_factory=set)
    proposed: dict[str, bytes] = field(default_factory=dict)
    """Member id -> what the leader gave it, while the journal takes that."""

    def begin(self, member_ids: Iterable[str], deadline_ms: int) -> None:
        """A generation has begun: all of its members are to ask."""
        self.unsynced = set(member_ids)
        self.deadline_ms = deadline_ms

    def asked(self, member_id: str) -> None:
        """A member has asked, or is gone: one less to wait for."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.deadline_ms = None

    def rename(self, old_id: str, member_id: str) -> None:
        """A static member has another member id now."""
        if old_id in self.unsynced:
            self.unsynced = (self.unsynced - {old_id}) | {member_id}

    def propose(self, member_ids: Iterable[str], given: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """The leader's assignment, for each of these members: empty for those that it gave nothing."""
        self.proposed = {member_id: given.get(member_id, b"") for member_id in member_ids}
        return self.proposed

    def accept(self) -> Mapping[str, bytes]:
        """The journal took what was proposed: it is in force."""
        accepted, self.proposed = self.proposed, {}
        return accepted

    def late(self, now_ms: int) -> list[str]:
        """The members that have not asked in time; they are not waited for again."""
        if self.deadline_ms is None or self.deadline_ms > now_ms:
            return []
        self.deadline_ms = None
        return sorted(self.unsynced)

    def end(self) -> None:
        """There is no such assignment: a new join phase begins."""
        self.deadline_ms = None
        self.unsynced.clear()
        self.proposed = {}
