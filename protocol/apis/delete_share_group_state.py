"""DeleteShareGroupState (key 86), v0, flexible: delete a group's state in share partitions (KIP-932)."""

from __future__ import annotations

from anabranch.protocol.apis.write_share_group_state import StateResult
from anabranch.protocol.wire import Int32, Text, Uuid, message


@message
class PartitionData:
    partition: Int32


@message
class DeleteStateData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message
class DeleteShareGroupStateRequest:
    group_id: Text
    topics: list[DeleteStateData]


@message
class DeleteShareGroupStateResponse:
    results: list[StateResult]
