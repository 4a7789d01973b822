"""The two phases of a rebalance: waiting for members to join, then for their assignment.

`JoinPhase` holds the deadline for joining. `AssignmentPhase` holds the members that have not synced and the leader's
proposed assignment. `rebalance` decides what follows from them.

Source: GroupCoordinator.scala of Kafka (DelayedJoin, InitialDelayedJoin, DelayedSync).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from anabranch.protocol.values import slotted


@slotted
class JoinPhase:
    """The join phase. The first phase of an Empty group is delayed, so that further members can join."""

    deadline_ms: int | None = None
    """When the phase, or the current interval of the initial delay, ends; None while no join phase is active."""
    delay_left_ms: int | None = None
    """The time by which the initial delay can still be prolonged; None if it is over or there was none."""
    others_joined: bool = False
    """Whether a new member joined in the current interval of the initial delay."""

    @property
    def delayed(self) -> bool:
        """Whether the initial delay is active; the phase then continues even if all known members have joined."""
        return self.delay_left_ms is not None

    def begin(self, now_ms: int, rebalance_timeout_ms: int) -> None:
        """Start the phase with the longest rebalance timeout of the members."""
        self.deadline_ms = now_ms + rebalance_timeout_ms
        self.others_joined = False

    def begin_delayed(self, now_ms: int, rebalance_timeout_ms: int, delay_ms: int) -> None:
        """Start the phase with an initial delay, even if all known members join earlier."""
        self.deadline_ms = now_ms + delay_ms
        self.delay_left_ms = max(rebalance_timeout_ms - delay_ms, 0)
        self.others_joined = False

    def note_others_joined(self) -> None:
        """Record that a new member joined."""
        self.others_joined = True

    def prolong(self, now_ms: int, delay_ms: int) -> bool:
        """Prolong the initial delay if a new member joined and time is left; return whether it was prolonged."""
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
        """Return whether the deadline has passed."""
        return self.deadline_ms is not None and self.deadline_ms <= now_ms

    def end(self) -> None:
        """End the phase."""
        self.deadline_ms = self.delay_left_ms = None


@slotted
class AssignmentPhase:
    """The assignment phase: the members of a generation that have not synced, and the proposed assignment."""

    deadline_ms: int | None = None
    """When members that have not synced are dropped; None if all have, or no phase is active."""
    unsynced: set[str] = field(default_factory=set)
    proposed: dict[str, bytes] = field(default_factory=dict)
    """Member id -> its assignment by the leader, while the journal stores it."""

    def begin(self, member_ids: Iterable[str], deadline_ms: int) -> None:
        """Start the phase; all members of the generation have to sync."""
        self.unsynced = set(member_ids)
        self.deadline_ms = deadline_ms

    def remove_pending_sync(self, member_id: str) -> None:
        """Record that a member has synced or was removed."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.deadline_ms = None

    def rename(self, old_id: str, member_id: str) -> None:
        """Replace the member id of a static member."""
        if old_id in self.unsynced:
            self.unsynced = (self.unsynced - {old_id}) | {member_id}

    def propose(self, member_ids: Iterable[str], given: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Set and return the leader's assignment for each of these members; empty for members without one."""
        self.proposed = {member_id: given.get(member_id, b"") for member_id in member_ids}
        return self.proposed

    def accept(self) -> Mapping[str, bytes]:
        """Return and clear the proposed assignment, which the journal has stored."""
        accepted, self.proposed = self.proposed, {}
        return accepted

    def late(self, now_ms: int) -> list[str]:
        """Return the members that have not synced in time, and clear the deadline."""
        if self.deadline_ms is None or self.deadline_ms > now_ms:
            return []
        self.deadline_ms = None
        return sorted(self.unsynced)

    def end(self) -> None:
        """End the phase and drop the proposed assignment."""
        self.deadline_ms = None
        self.unsynced.clear()
        self.proposed = {}
