"""The future that a request waits for when it has done its work, and waits for nothing but its effect to be safe.

A connection may take up what is behind such a request. It is a type of its own because what waits is told only by what
it yields, through whatever stands around it: quotas, metrics, rules of faults, the journal.
"""

from __future__ import annotations

import asyncio


class ReplicationFuture(asyncio.Future[None]):
    """Done when the effect is safe, or will not be."""

    __slots__ = ()
