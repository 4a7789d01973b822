"""The future that a request awaits once it has appended and only waits for replication.

A connection may start the next request behind such a request. It is a type of its own because the wait is recognized by
what the coroutine yields, through all wrappers: quotas, metrics, fault rules, the journal.
"""

from __future__ import annotations

import asyncio


class ReplicationFuture(asyncio.Future[None]):
    """A future that is done when the effect is replicated, or will not be."""

    __slots__ = ()
