"""AlterPartition (key 56), v0-v3, flexible from v0: a leader proposes a new ISR to the controller (KIP-497).

v1   leader recovery state                                               KIP-704
v2   topics by id; INELIGIBLE_REPLICA may be answered                    KIP-516, KIP-841
v3   every proposed member with its incarnation (broker epoch)           KIP-903
ours: that a topic gets its first batch with a generation       R16
"""

from __future__ import annotations

from anabranch.protocol.wire import (
    ZERO_UUID,
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Text,
    Uuid,
    always,
    message,
    since,
    tagged,
    until,
)


@message
class BrokerState:
    broker_id: Int32
    broker_epoch: Int64 = always(absent=-1)


@message
class PartitionData:
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = until(2, absent=list)
    new_isr_with_epochs: list[BrokerState] = since(3, absent=list)
    """-1 as epoch: not known, do not check."""
    leader_recovery_state: Int8 = since(1, absent=0)
    """0: recovered; 1: recovering from an unclean election."""
    partition_epoch: Int32
    """The state the proposal starts from; the controller compares and swaps."""


@message
class TopicData:
    topic_name: Text = until(1, absent="")
    topic_id: Uuid = since(2, absent=ZERO_UUID)
    partitions: list[PartitionData]
    has_generations: Boolean = tagged(2544, since=0, absent=False)
    """A batch with a generation is about to be stored: write down that the topic has such (R16)."""


@message
class AlterPartitionRequest:
    broker_id: Int32
    broker_epoch: Int64 = always(absent=-1)
    """The leader's own; a stale one refuses the whole request."""
    topics: list[TopicData]


@message
class PartitionDataResult:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = since(1, absent=0)
    partition_epoch: Int32


@message
class TopicDataResult:
    topic_name: Text = until(1, absent="")
    topic_id: Uuid = since(2, absent=ZERO_UUID)
    partitions: list[PartitionDataResult]
    has_generations: Boolean = tagged(2544, since=0, absent=False)
    """Whether the topic is marked: it has batches with generations."""


@message
class AlterPartitionResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    topics: list[TopicDataResult]
