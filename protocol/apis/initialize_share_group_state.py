"""InitializeShareGroupState (key 83), v0, flexible: start the state of a group in share partitions (KIP-932).

The group coordinator asks the share coordinator of the partitions, which keeps how far the group is in each.
"""

from __future__ import annotations

from anabranch.protocol.apis.write_share_group_state import StateResult
from anabranch.protocol.wire import Int32, Int64, Text, Uuid, message


@message
class PartitionData:
    partition: Int32
    state_epoch: Int32
    """What is written under an older one is refused from now on."""
    start_offset: Int64
    """-1: where the group's settings say."""


@message
class InitializeStateData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message
class InitializeShareGroupStateRequest:
    group_id: Text
    topics: list[InitializeStateData]


@message
class InitializeShareGroupStateResponse:
    results: list[StateResult]
