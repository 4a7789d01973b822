"""What a leader knows about one follower, all of it learned from the follower's own fetches.

A follower that asks for an offset has everything before it. It is caught up when it has the whole log now, or had it at
some moment within `replica.lag.time.max.ms`; also one that never has what arrived a moment ago, as long as each fetch
asks for all that existed at the one before. Source: Kafka's `Replica`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

NEVER: Final = -math.inf
NO_EPOCH: Final = -1


@dataclass(slots=True, eq=False)
class LastSeen:
    """When a follower last asked in a fetch session: said once for all partitions in which there is nothing new."""

    seen_ms: float = NEVER


@dataclass(slots=True)
class Follower:
    """One follower, as its leader sees it in one leader epoch."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    caught_up_ms: float = NEVER
    last_fetch_ms: float = NEVER
    leader_end_at_last_fetch: int = -1
    broker_epoch: int = NO_EPOCH
    presence: LastSeen | None = None
    """Of the session in which it asks for the end of the log again and again, for as long as nothing changes here."""

    def fetched(self, offset: int, log_start_offset: int, broker_epoch: int, *, leader_end: int, now_ms: float) -> None:
        """It asked for `offset`, while the leader's log ended at `leader_end`."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            # It has all that existed when it last asked, so it was caught up then.
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end
        self.broker_epoch = broker_epoch

    def rest(self, presence: LastSeen) -> None:
        """It has the whole log: each time that it is present from now on, it asks for the end of it once more."""
        self.presence = presence

    def stir(self) -> None:
        """Something changes: what its presence has said until now is all that it has said."""
        if self.presence is not None:
            seen_ms, self.presence = self.presence.seen_ms, None
            self.caught_up_ms = max(self.caught_up_ms, seen_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, seen_ms)

    @property
    def seen_caught_up_ms(self) -> float:
        """When it was last seen to have had everything."""
        return self.caught_up_ms if self.presence is None else max(self.caught_up_ms, self.presence.seen_ms)

    def caught_up(self, leader_end: int, now_ms: float, lag_time_max_ms: float) -> bool:
        """Whether it may be in the ISR, as far as its log is concerned."""
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= lag_time_max_ms
