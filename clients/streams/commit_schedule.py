"""When the next commit of an instance begins.

A commit is due an interval after the last one. During a rebalance the group may refuse it, so it is put off to the
rebalance's end; a transaction only for half of its timeout, because the group may wait for a dead member for longer.
Pure; source: TaskManager.commit and StreamThread.maybeCommit of Kafka Streams.
"""

from __future__ import annotations

import math

from anabranch.clients.streams.config import StreamsConfig


class CommitSchedule:
    """The commits of one instance. Times are seconds of one clock."""

    def __init__(self, config: StreamsConfig, now: float) -> None:
        self._interval_s = config.commit_interval_ms / 1000
        self._delay_max_s = config.transaction_timeout_ms / 2000 if config.exactly_once else math.inf
        self._committed_at = now
        self.due = now
        self.put_off = False
        """Whether a commit waits for the end of a rebalance."""

    def may_begin(self, now: float, *, rebalancing: bool) -> bool:
        """Whether a commit may begin now; otherwise it is put off."""
        latest = self._committed_at + self._delay_max_s
        self.put_off = rebalancing and now < latest
        if self.put_off:
            self.due = min(now + self._interval_s, latest)
        return not self.put_off

    def begin(self, now: float) -> None:
        """Note that a commit begins, or has nothing to do."""
        self._committed_at = now
        self.due = now + self._interval_s

    def hasten(self, now: float) -> None:
        """Make the next commit due at once."""
        self.due = now
