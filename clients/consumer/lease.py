"""For how long a member may take what the group gave it for its own, though it hears nothing more.

A coordinator takes a member's partitions away when it has not heard of it for its session timeout, or when it did not
join again within its rebalance timeout after the group was told to. Both times begin when the coordinator receives
something, so not before that was sent: until they have run out since the last request that was answered, no other
member can have been given them. After that the member counts as replaced until it hears otherwise. (While the group
still waits for it, it hears that it is a member, and joins again; what it has is its own only when that is answered.)

In a group of the classic protocol the member chooses its session timeout. In one of the consumer protocol (KIP-848) the
broker does, for each group, and may change it: our brokers tell it in each answer. A member whose coordinator does not
tell it (a Kafka 4) has to have heard within two heartbeat intervals.

A static member's place can be taken at any moment by another one that comes with its instance id (KIP-345), without
any timeout: such a member has to have heard lately, that is within two heartbeats.

Invariant: `until` is never later than the first moment at which the coordinator may expire the member. What it cannot
know is that an administrator removed it, or that its coordinator is none any more and does not know it; it hears of
those by its next heartbeat. Pure.
"""

from __future__ import annotations

import math
from typing import Final

NEVER: Final = -math.inf
HEARTBEATS: Final = 2
RECENT_MIN_S: Final = 1.0
"""An answer takes its time, and has to come before it is out of date."""


class Lease:
    """The lease of one member, in seconds of a clock that stands still for nothing (`clients.clock.elapsed_clock`)."""

    def __init__(
        self,
        *,
        session_timeout_s: float | None,
        rebalance_timeout_s: float,
        heartbeat_interval_s: float,
        static: bool,
    ) -> None:
        self._static = static
        self.agree(session_timeout_s=session_timeout_s, heartbeat_interval_s=heartbeat_interval_s)
        self._rebalance_timeout_s = rebalance_timeout_s
        self.until = NEVER
        """Until then no other member can have been given what this one has."""
        self.known_until = NEVER
        """Until then it need not ask again whether it is a member."""
        self._heard_until = self._place_until = self._awaited_until = NEVER

    def agree(self, *, session_timeout_s: float | None, heartbeat_interval_s: float) -> None:
        """Take over what the coordinator enforces; `session_timeout_s` is None if it does not tell its session."""
        self._lately_s = max(HEARTBEATS * heartbeat_interval_s, RECENT_MIN_S)
        asks_early = self._static or session_timeout_s is None
        known_s = math.inf if session_timeout_s is None else session_timeout_s
        self._silence_s = min(known_s, self._lately_s) if asks_early else known_s

    def renew(self, asked_at_s: float, *, rebalancing: bool = False) -> None:
        """The coordinator knew this member when it answered what was asked at that time.

        If it said that the group rebalances, that may have begun at any time since it last did not.
        """
        self._heard_until = max(self._heard_until, asked_at_s + self._silence_s)
        if not rebalancing:
            self._place_until = max(self._place_until, asked_at_s + self._rebalance_timeout_s)
        if asked_at_s >= self._place_until:
            self._awaited_until = asked_at_s + self._lately_s
        self.until = min(self._heard_until, self._place_until)
        self.known_until = min(self._heard_until, max(self._place_until, self._awaited_until))

    def end(self) -> None:
        """The coordinator does not know this member: it is replaced, whatever it heard before."""
        self.until = self.known_until = NEVER
        self._heard_until = self._place_until = self._awaited_until = NEVER
