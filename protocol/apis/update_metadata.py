"""UpdateMetadata (key 6), v0-v8, flexible from v6: the controller sends the cluster's metadata to every broker.

v1   several endpoints per broker
v2   racks
v3   named listeners                                                     KIP-103
v4   offline replicas                                                    KIP-112
v5   broker epoch, partitions grouped by topic                           KIP-380
v6   flexible; ours: lineage and broker epochs in tagged fields          KIP-253, KIP-903, D3, D5
v7   topic ids                                                           KIP-516
v8   whether the sender is a KRaft controller, and the kind of update    KIP-866
"""

from __future__ import annotations

from anabranch.protocol.apis.common_structs import GenerationStart, ReshardStep
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
class UpdateMetadataPartitionState:
    topic_name: Text = until(4, absent="")
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    """-1: none; -2: the topic is being deleted."""
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = since(4, absent=list)
    generation: Int32 = tagged(2531, since=6, absent=-1)
    gen_start: list[GenerationStart] = tagged(2538, since=6, absent=list)
    marked_for_deletion: Boolean = tagged(2539, since=6, absent=False)


@message
class UpdateMetadataTopicState:
    topic_name: Text
    topic_id: Uuid = since(7, absent=ZERO_UUID)
    partition_states: list[UpdateMetadataPartitionState]
    undeleted_partition_count: Int32 = tagged(2530, since=6, absent=-1)
    generation: Int32 = tagged(2531, since=6, absent=-1)
    initial_partition_count: Int32 = tagged(2532, since=6, absent=-1)
    history: list[ReshardStep] = tagged(2533, since=6, absent=list)
    base: Int32 = tagged(2534, since=6, absent=-1)
    ordered_delivery: Boolean = tagged(2535, since=6, absent=False)
    min_insync_replicas: Int16 = tagged(2536, since=6, absent=-1)
    has_generations: Boolean = tagged(2544, since=6, absent=False)
    """Whether a producer has written batches with generations: the topic is ordered (R16)."""


@message
class UpdateMetadataEndpoint:
    port: Int32
    host: Text
    listener: Text = since(3, absent="")
    security_protocol: Int16


@message
class UpdateMetadataBroker:
    id: Int32
    v0_host: Text = until(0, absent="")
    v0_port: Int32 = until(0, absent=0)
    endpoints: list[UpdateMetadataEndpoint] = since(1, absent=list)
    rack: Text | None = since(2, absent="")
    broker_epoch: Int64 = tagged(2541, since=6, absent=-1)
    """czxid of the broker's registration: what KIP-903 compares with, here in ZooKeeper mode too (D5)."""


@message
class UpdateMetadataRequest:
    controller_id: Int32
    is_kraft_controller: Boolean = since(8, absent=False)
    type: Int8 = tagged(0, since=8, absent=0)
    controller_epoch: Int32
    broker_epoch: Int64 = since(5, absent=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = until(4, absent=list)
    topic_states: list[UpdateMetadataTopicState] = since(5, absent=list)
    live_brokers: list[UpdateMetadataBroker]


@message
class UpdateMetadataResponse:
    error_code: Int16
