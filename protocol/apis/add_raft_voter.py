"""AddRaftVoter (key 80), v0-v1, flexible from v0: add a controller to the quorum (KIP-853).

v1   whether to wait until the others have it                            KIP-1186
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Text, UInt16, Uuid, always, message, since


@message
class Listener:
    name: Text
    host: Text
    port: UInt16


@message
class AddRaftVoterRequest:
    cluster_id: Text | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Boolean = since(1, absent=True)


@message
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
