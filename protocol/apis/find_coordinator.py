"""FindCoordinator (key 10), v0-v6, flexible from v3: the coordinator of a group or a transactional id.

v1   transactional ids beside groups, error messages, throttle time      KIP-98
v4   many keys at once: answers move into a list                         KIP-699
v5   TRANSACTION_ABORTABLE may be answered                               KIP-890
v6   key type 2: share groups                                            KIP-932
"""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Text, message, since, until


@message
class FindCoordinatorRequest:
    key: Text = until(3, absent="")
    key_type: Int8 = since(1, absent=0)
    """0: a group; 1: a transactional id."""
    coordinator_keys: list[Text] = since(4, absent=list)


@message
class Coordinator:
    key: Text
    node_id: Int32
    host: Text
    port: Int32
    error_code: Int16
    error_message: Text | None


@message
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16 = until(3, absent=0)
    error_message: Text | None = since(1, absent="", until=3)
    node_id: Int32 = until(3, absent=0)
    """-1 beside an error."""
    host: Text = until(3, absent="")
    port: Int32 = until(3, absent=0)
    coordinators: list[Coordinator] = since(4, absent=list)
