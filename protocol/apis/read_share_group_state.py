"""ReadShareGroupState (key 84), v0, flexible: the state of a group in share partitions (KIP-932).

The leader of a partition asks its share coordinator when it begins to serve the group.
"""

from __future__ import annotations

from anabranch.protocol.apis.write_share_group_state import StateBatch
from anabranch.protocol.wire import Int16, Int32, Int64, Text, Uuid, always, message, tagged


@message
class PartitionData:
    partition: Int32
    leader_epoch: Int32
    """What is written under an older one is refused from now on."""
    number: Int64 = tagged(2549, since=0, absent=-1)
    """What this leader has asked before, and comes only now, is refused too."""


@message
class ReadStateData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message
class ReadShareGroupStateRequest:
    group_id: Text
    topics: list[ReadStateData]


@message
class PartitionResult:
    partition: Int32
    error_code: Int16
    error_message: Text | None = always(absent=None)
    state_epoch: Int32 = always(absent=0)
    start_offset: Int64 = always(absent=0)
    state_batches: list[StateBatch] = always(absent=list)


@message
class ReadStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult]


@message
class ReadShareGroupStateResponse:
    results: list[ReadStateResult]
