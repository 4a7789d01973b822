"""RemoveRaftVoter (key 81), v0, flexible from v0: remove a controller from the quorum (KIP-853)."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, Uuid, always, message


@message
class RemoveRaftVoterRequest:
    cluster_id: Text | None
    voter_id: Int32
    voter_directory_id: Uuid


@message
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
