"""The lease of a front on an agent: the front that holds it, and its end. Pure.

The rules that a front adds live as long as its lease. A front that ends, or that cannot reach the node, leaves no rule
behind for longer than one lease. Another front gets the lease only after its end.
"""

from __future__ import annotations

from typing import Final

LEASE_S: Final = 10.0
NAME_CHARS_MAX: Final = 100


class LeaseRefused(Exception):
    """Another front holds the lease, or this one does not; the message names the holder."""


class Lease:
    """The lease on one agent."""

    def __init__(self, duration_s: float = LEASE_S) -> None:
        self.duration_s = duration_s
        self.ends_s = 0.0
        """The end of the last lease."""
        self.front = ""
        """The front that held the lease last."""

    def holder(self, now_s: float) -> str:
        """The front that holds the lease; empty if none does."""
        return self.front if now_s < self.ends_s else ""

    def renew(self, front: str, now_s: float) -> None:
        """Give the lease to a front, or extend it. Raises LeaseRefused, or ValueError for an invalid name."""
        _check_name(front)
        if (holder := self.holder(now_s)) not in ("", front):
            raise LeaseRefused(f"front {holder} controls this node, for at least {self.ends_s - now_s:.1f} s more")
        self.front, self.ends_s = front, now_s + self.duration_s

    def check(self, front: str, now_s: float) -> None:
        """Raise LeaseRefused unless this front holds the lease, or ValueError for an invalid name."""
        _check_name(front)
        if (holder := self.holder(now_s)) != front:
            by = f"front {holder} controls this node" if holder else "no front controls this node"
            raise LeaseRefused(f"{by}; front {front} needs the lease first: POST /v1/agent/lease")

    def refuse_others(self, front: str, now_s: float) -> None:
        """Raise LeaseRefused if another front than this one holds the lease; an empty name is no front."""
        if (holder := self.holder(now_s)) not in ("", front):
            raise LeaseRefused(f"front {holder} controls this node, and only it changes rules here; ask that front")

    def end(self) -> str:
        """End the lease; returns the front that held it last."""
        front, self.front, self.ends_s = self.front, "", 0.0
        return front


def _check_name(front: str) -> None:
    if not front or len(front) > NAME_CHARS_MAX:
        raise ValueError(f"front is a name of 1 to {NAME_CHARS_MAX} characters")
