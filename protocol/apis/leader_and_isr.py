"""LeaderAndIsr (key 4), v0-v7, flexible from v4: the controller tells a broker which partitions it leads and follows.

v1   whether a partition is new, so that missing data is no surprise
v2   broker epoch, and partitions grouped by topic                       KIP-380
v3   replicas being added and removed                                    KIP-455
v4   flexible; ours: generations of resized topics in tagged fields      KIP-253, D3
v5   topic ids; type 2 says "this is everything you host"                KIP-516
v6   leader recovery state                                               KIP-704
v7   whether the sender is a KRaft controller                            KIP-866
"""

from __future__ import annotations

from anabranch.protocol.apis.common_structs import GenerationStart
from anabranch.protocol.wire import (
    ZERO_UUID,
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Text,
    Uuid,
    message,
    since,
    tagged,
    until,
)


@message
class LeaderAndIsrPartitionState:
    topic_name: Text = until(1, absent="")
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    """Version of the partition's state znode."""
    replicas: list[Int32]
    adding_replicas: list[Int32] = since(3, absent=list)
    removing_replicas: list[Int32] = since(3, absent=list)
    is_new: Boolean = since(1, absent=False)
    leader_recovery_state: Int8 = since(6, absent=0)
    generation: Int32 = tagged(2531, since=4, absent=-1)
    gen_start: list[GenerationStart] = tagged(2538, since=4, absent=list)
    marked_for_deletion: Boolean = tagged(2539, since=4, absent=False)
    """Sealed by a shrink: no producer may write there any more."""
    log_start_offset: Int64 = tagged(2542, since=4, absent=-1)
    """Where the log of a re-created index begins (R14): a local log that starts lower is of an earlier incarnation."""
    first_leader_epoch: Int32 = tagged(2543, since=4, absent=-1)
    """The first leader epoch of a re-created index (R13): a local log that an earlier one wrote is no part of it."""


@message
class LeaderAndIsrTopicState:
    topic_name: Text
    topic_id: Uuid = since(5, absent=ZERO_UUID)
    partition_states: list[LeaderAndIsrPartitionState]
    undeleted_partition_count: Int32 = tagged(2530, since=4, absent=-1)
    has_generations: Boolean = tagged(2544, since=4, absent=False)
    """Whether a producer has written batches with generations: the topic is ordered (R16)."""


@message
class LeaderAndIsrLiveLeader:
    broker_id: Int32
    host_name: Text
    port: Int32


@message
class LeaderAndIsrRequest:
    controller_id: Int32
    is_kraft_controller: Boolean = since(7, absent=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(2, absent=-1)
    """The incarnation of the receiver that is meant; -1 before v2."""
    type: Int8 = since(5, absent=0)
    """2: this is the whole truth about the receiver; 1: a change."""
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = until(1, absent=list)
    topic_states: list[LeaderAndIsrTopicState] = since(2, absent=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


@message
class LeaderAndIsrPartitionError:
    topic_name: Text = until(4, absent="")
    partition_index: Int32
    error_code: Int16


@message
class LeaderAndIsrTopicError:
    topic_id: Uuid
    partition_errors: list[LeaderAndIsrPartitionError]


@message
class LeaderAndIsrResponse:
    error_code: Int16
    partition_errors: list[LeaderAndIsrPartitionError] = until(4, absent=list)
    topics: list[LeaderAndIsrTopicError] = since(5, absent=list)
