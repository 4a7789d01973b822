"""ControlledShutdown (key 7), v0-v3, flexible from v3: a broker asks the controller to move its leaders away.

v0   the only request whose header has no client id
v1   an ordinary header
v2   broker epoch: a request of an earlier incarnation is refused        KIP-380
"""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, message, since


@message
class ControlledShutdownRequest:
    broker_id: Int32
    broker_epoch: Int64 = since(2, absent=-1)


@message
class RemainingPartition:
    topic_name: Text
    partition_index: Int32


@message
class ControlledShutdownResponse:
    error_code: Int16
    remaining_partitions: list[RemainingPartition]
    """The partitions that the broker still leads; it asks again while there are some."""
