"""`python -m tests.chaos.acks_too_early`: a product that acknowledges acks=all before replication.

For the question whether a chaos run would notice. Its followers are late besides, which alone breaks no promise: so
whenever a leader dies under load there is something to lose, on the fastest machine and on the slowest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from anabranch.broker.replication.purgatory import DelayedProduce, Purgatory
from anabranch.broker.replication.replica_fetcher import Fetcher
from anabranch.cli.main import main
from anabranch.protocol.errors import ErrorCode

LATE_S: Final = 0.7
fetch_once = Fetcher._fetch_once


async def fetch_late(fetcher: Fetcher) -> None:
    """A follower that takes its time before each fetch."""
    await asyncio.sleep(LATE_S)
    await fetch_once(fetcher)


async def no_wait(
    rooms: Purgatory, waits: Sequence[DelayedProduce], timeout_ms: float, *, settling: bool = False
) -> None:
    """Everything is replicated as soon as it is asked about."""
    for wait in waits:
        wait.code = ErrorCode.NONE


if __name__ == "__main__":
    Fetcher._fetch_once = fetch_late  # type: ignore[method-assign]
    Purgatory.wait_replicated = no_wait  # type: ignore[method-assign,assignment]
    main()
