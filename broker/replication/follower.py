"""A leader's state of one follower, derived from the follower's fetches.

A follower that requests an offset has everything before it. It is caught up if it has the whole log now, or had it at
some moment within `replica.lag.time.max.ms`. It is also caught up if each fetch requests everything that existed at the
previous fetch. Source: Kafka's `Replica`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

NEVER: Final = -math.inf
NO_EPOCH: Final = -1


@dataclass(slots=True, eq=False)
class LastSeen:
    """The time of a follower's last request in a fetch session, shared by all its idle partitions."""

    seen_ms: float = NEVER


@dataclass(slots=True)
class Follower:
    """One follower, as its leader knows it in one leader epoch."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    caught_up_ms: float = NEVER
    last_fetch_ms: float = NEVER
    leader_end_at_last_fetch: int = -1
    broker_epoch: int = NO_EPOCH
    presence: LastSeen | None = None
    """The session in which the follower is idle at the end of the log."""

    def record_fetch(
        self, offset: int, log_start_offset: int, broker_epoch: int, *, leader_end: int, now_ms: float
    ) -> None:
        """Record a fetch of `offset`, while the leader's log ended at `leader_end`."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            # It has everything that existed at its last fetch, so it was caught up then.
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end
        self.broker_epoch = broker_epoch

    def mark_idle(self, presence: LastSeen) -> None:
        """Count each later request of the session as a fetch at the log end: the follower has the whole log."""
        self.presence = presence

    def stir(self) -> None:
        """Stop counting the session's requests: the partition has changed."""
        if self.presence is not None:
            seen_ms, self.presence = self.presence.seen_ms, None
            self.caught_up_ms = max(self.caught_up_ms, seen_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, seen_ms)

    @property
    def seen_caught_up_ms(self) -> float:
        """Return when the follower was last known to have everything."""
        return self.caught_up_ms if self.presence is None else max(self.caught_up_ms, self.presence.seen_ms)

    def caught_up(self, leader_end: int, now_ms: float, lag_time_max_ms: float) -> bool:
        """Return whether its log allows it to be in the ISR."""
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= lag_time_max_ms
