"""What an audit judges, beside what stands in the audit topic: the same in every batch, and after every restart."""

from __future__ import annotations

from typing import Final, NamedTuple

FORGET_MS: Final = 7 * 24 * 3600 * 1000
"""Lines without deliveries for so long are forgotten."""
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


class Scope(NamedTuple):
    """The audited topic, who has to get what it stores, and for how long keys are remembered."""

    expect: str | None = None
    """The topic whose records are compared with what was delivered."""
    groups: tuple[str, ...] = ()
    """The groups that its records wait for, whether they are heard of or not. None: every group that is heard of before
    the first record is given up."""
    forget_ms: int = FORGET_MS
    isolation_level: str = READ_COMMITTED
    """Which stored records count. Nobody has to be handed what a transaction gave up, or has not decided on; without
    transactions both levels are the same."""
