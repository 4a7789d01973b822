"""`python -m tests.chaos.acks_too_early`: a product that acknowledges acks=all before anybody else has the record.

For the question whether a chaos run would notice.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.main import main
from broker.replication.replica_manager import ReplicaManager
from broker.replication.waiting import ReplicationWait
from protocol.errors import ErrorCode


async def no_wait(manager: ReplicaManager, waits: Sequence[ReplicationWait], timeout_ms: float) -> None:
    """Everything is replicated as soon as it is asked about."""
    for wait in waits:
        wait.code = ErrorCode.NONE


if __name__ == "__main__":
    ReplicaManager.wait_replicated = no_wait  # type: ignore[method-assign,assignment]
    main()
