"""What an audit judges beside the audit topic itself: the same in every batch, and after every restart."""

from __future__ import annotations

from typing import Final, NamedTuple

FORGET_MS: Final = 7 * 24 * 3600 * 1000
"""After this time without a delivery a line is forgotten."""
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


class Scope(NamedTuple):
    """The audited topic, the groups that must be given its records, and how long keys are remembered."""

    expect: str | None = None
    """The topic whose records are compared with what was delivered."""
    groups: tuple[str, ...] = ()
    """The groups that its records wait for, whether they are heard of or not. None: every group that is heard of before
    the first record is given up."""
    forget_ms: int = FORGET_MS
    isolation_level: str = READ_COMMITTED
    """Which stored records count. Those of aborted and open transactions need not be delivered to any group; without
    transactions both levels are the same."""
