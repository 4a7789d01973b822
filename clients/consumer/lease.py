"""The lease of a member: how long it may use its partitions without a response from the coordinator.

A coordinator reassigns a member's partitions after a session timeout without heartbeats, or if it does not rejoin
within its rebalance timeout. Both times start when the coordinator receives a request, so not before it was sent: until
they expire, counted from the last answered request, no other member can own the partitions. After that the member
counts as replaced until a response confirms it. (During a rebalance a response confirms the member, which then joins
again; its partitions are its own only when the join is answered.)

In a classic group the member chooses its session timeout. In a KIP-848 group the broker does, per group, and may change
it: our brokers send it in each response. With a coordinator that does not (Kafka 4), the member needs a response within
two heartbeat intervals.

Another member with the same instance id can replace a static member at any moment (KIP-345), without a timeout. Such a
member therefore needs a response within two heartbeat intervals.

Invariant: `until` is never later than the first moment at which the coordinator may expire the member. Two cases are
outside the lease: an administrator removed the member, or the coordinator moved and does not know it. The next
heartbeat reports those. Pure.
"""

from __future__ import annotations

import math
from typing import Final

NEVER: Final = -math.inf
HEARTBEATS: Final = 2
RECENT_MIN_S: Final = 1.0
"""Minimum, because a response takes time and must arrive before the lease expires."""


class Lease:
    """The lease of one member, in seconds of a clock that never stops (`clients.clock.elapsed_clock`)."""

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
        """Until then no other member can own this member's partitions."""
        self.known_until = NEVER
        """Until then the membership needs no confirmation."""
        self._confirmed_until = self._place_until = self._awaited_until = NEVER

    def agree(self, *, session_timeout_s: float | None, heartbeat_interval_s: float) -> None:
        """Set the coordinator's timeouts; `session_timeout_s` is None if it does not send its session timeout."""
        self._lately_s = max(HEARTBEATS * heartbeat_interval_s, RECENT_MIN_S)
        asks_early = self._static or session_timeout_s is None
        known_s = math.inf if session_timeout_s is None else session_timeout_s
        self._silence_s = min(known_s, self._lately_s) if asks_early else known_s

    def renew(self, sent_at_s: float, *, rebalancing: bool = False) -> None:
        """Renew the lease for a request sent at that time, whose response confirmed the member.

        If the response reports a rebalance, that may have started at any time since the last response without one.
        """
        self._confirmed_until = max(self._confirmed_until, sent_at_s + self._silence_s)
        if not rebalancing:
            self._place_until = max(self._place_until, sent_at_s + self._rebalance_timeout_s)
        if sent_at_s >= self._place_until:
            self._awaited_until = sent_at_s + self._lately_s
        self.until = min(self._confirmed_until, self._place_until)
        self.known_until = min(self._confirmed_until, max(self._place_until, self._awaited_until))

    def end(self) -> None:
        """End the lease: the coordinator does not know this member, so it is replaced."""
        self.until = self.known_until = NEVER
        self._confirmed_until = self._place_until = self._awaited_until = NEVER
