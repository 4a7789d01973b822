"""The scope of an audit beyond the audit topic itself: the same in every batch, and after every restart."""

from __future__ import annotations

from typing import Final, NamedTuple

FORGET_MS: Final = 7 * 24 * 3600 * 1000
"""After this time without a delivery a line is forgotten."""
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


class Scope(NamedTuple):
    """The audited topic, the groups that must receive its records, and how long keys are remembered."""

    expect: str | None = None
    """The topic whose records are compared with deliveries."""
    groups: tuple[str, ...] = ()
    """The groups that its records wait for, with or without deliveries. None: every group with a delivery before the
    first record is dropped."""
    forget_ms: int = FORGET_MS
    isolation_level: str = READ_COMMITTED
    """Which stored records count. Those of aborted and open transactions need not be delivered; without transactions
    both levels are the same."""
