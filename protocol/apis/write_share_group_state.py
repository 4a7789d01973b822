"""WriteShareGroupState (key 85), v0-v1, flexible: store the outcomes of records in share partitions (KIP-932).

v1   how many records behind the start are done                                       KIP-1226
"""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Int64, Text, Uuid, always, message, since, tagged


@message
class StateBatch:
    first_offset: Int64
    last_offset: Int64
    """Inclusive."""
    delivery_state: Int8
    """0 available, 2 acknowledged, 4 archived."""
    delivery_count: Int16


@message
class PartitionData:
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    """-1: unchanged."""
    delivery_complete_count: Int32 = since(1, absent=-1)
    state_batches: list[StateBatch]
    """What has changed."""
    number: Int64 = tagged(2549, since=0, absent=-1)
    """Grows with each request of one leader: what comes behind a later one is refused."""


@message
class WriteStateData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message
class WriteShareGroupStateRequest:
    group_id: Text
    topics: list[WriteStateData]


@message
class PartitionResult:
    partition: Int32
    error_code: Int16
    error_message: Text | None = always(absent=None)


@message
class StateResult:
    topic_id: Uuid
    partitions: list[PartitionResult]


@message
class WriteShareGroupStateResponse:
    results: list[StateResult]
