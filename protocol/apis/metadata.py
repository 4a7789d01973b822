"""Metadata (key 3), v0-v13, flexible from v9: who the brokers are and who leads what.

v0   an empty list of topics means all
v1   null means all, an empty list none; controller id, racks, internal topics
v2   cluster id                                                          KIP-78
v3   throttle time
v4   whether asking may create the topic
v5   offline replicas                                                    KIP-112
v7   leader epochs                                                       KIP-320
v8   authorized operations                                               KIP-430
v9   flexible; ours: lineages in tagged fields, for clients that ask     KIP-253, D3, D27
v10  topic ids in the answer                                             KIP-516
v11  authorized operations of the cluster move to DescribeCluster        KIP-700
v12  topics may be asked by id, with a null name                         KIP-516
v13  an error for the whole answer: begin again from the bootstrap servers  KIP-1102
"""

from __future__ import annotations

from typing import ClassVar

from anabranch.protocol.apis.common_structs import GenerationStart, ReshardStep
from anabranch.protocol.wire import ZERO_UUID, Boolean, Int16, Int32, Text, Uuid, always, message, since, tagged


@message
class MetadataRequestTopic:
    topic_id: Uuid = since(10, absent=ZERO_UUID)
    name: Text | None = always(nullable_since=10)


@message
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = always(nullable_since=1)
    """Null asks for all; so does an empty list in v0."""
    allow_auto_topic_creation: Boolean = since(4, absent=True)
    include_cluster_authorized_operations: Boolean = since(8, absent=False, until=10)
    include_topic_authorized_operations: Boolean = since(8, absent=False)
    generation_aware: Boolean = tagged(2560, since=9, absent=False)
    """Whether the client reads generations: only then does the answer carry tagged fields of ours (D27)."""


@message
class MetadataResponseBroker:
    node_id: Int32
    host: Text
    port: Int32
    rack: Text | None = since(1, absent=None)


@message
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, absent=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = since(5, absent=list)
    partition_epoch: Int32 = tagged(2537, since=9, absent=-1)
    gen_start: list[GenerationStart] = tagged(2538, since=9, absent=list)
    marked_for_deletion: Boolean = tagged(2539, since=9, absent=False)
    """Sealed by a shrink: readable, and gone once everything was read."""


@message
class MetadataResponseTopic:
    flexible_from: ClassVar[int] = 9
    """A node encodes a topic's row once for many responses: see `EncodedElements`."""
    error_code: Int16
    name: Text | None = always(nullable_since=12)
    topic_id: Uuid = since(10, absent=ZERO_UUID)
    is_internal: Boolean = since(1, absent=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = since(8, absent=-2147483648)
    undeleted_partition_count: Int32 = tagged(2530, since=9, absent=-1)
    """How many partitions take new records; -1 while the topic was never resized."""
    generation: Int32 = tagged(2531, since=9, absent=-1)
    initial_partition_count: Int32 = tagged(2532, since=9, absent=-1)
    history: list[ReshardStep] = tagged(2533, since=9, absent=list)
    base: Int32 = tagged(2534, since=9, absent=-1)
    ordered_delivery: Boolean = tagged(2535, since=9, absent=False)
    min_insync_replicas: Int16 = tagged(2536, since=9, absent=-1)
    """The effective min.insync.replicas, for producers with acks=all."""
    has_generations: Boolean = tagged(2544, since=9, absent=False)
    """Whether a producer has written batches with generations: the topic is ordered (R16)."""


@message
class MetadataResponse:
    throttle_time_ms: Int32 = since(3, absent=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: Text | None = since(2, absent=None)
    controller_id: Int32 = since(1, absent=-1)
    """The active controller while it is a broker, otherwise one that forwards to it."""
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = since(8, absent=-2147483648, until=10)
    error_code: Int16 = since(13, absent=0)
    """REBOOTSTRAP_REQUIRED, or nothing."""
    max_partition_epoch: Int32 = tagged(2540, since=9, absent=-1)
    """The latest change that this answer includes, to tell old answers from new ones."""
