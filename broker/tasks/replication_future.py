"""The future that a request awaits between its append and the replication of its records.

A connection may start the next request during this wait. The wait is recognized by the type of the future that the
coroutine yields, through all wrappers: quotas, metrics, fault rules, the journal.
"""

from __future__ import annotations

import asyncio


class ReplicationFuture(asyncio.Future[None]):
    """A future that is done when the records are replicated, or when the wait ends without that."""

    __slots__ = ()
