"""CreateTopics (key 19), v0-v7, flexible from v5: new topics, by count or by explicit assignment.

v1   only check; error messages
v2   throttle time
v4   -1 for the broker's own default of partitions and replicas          KIP-464
v5   flexible; the answer shows the topic as it was made                 KIP-525
v6   THROTTLING_QUOTA_EXCEEDED may be answered                           KIP-599
v7   topic id in the answer                                              KIP-516
"""

from __future__ import annotations

from anabranch.protocol.wire import ZERO_UUID, Boolean, Int8, Int16, Int32, Text, Uuid, always, message, since, tagged


@message
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32]


@message
class CreatableTopicConfig:
    name: Text
    value: Text | None


@message
class CreatableTopic:
    name: Text
    num_partitions: Int32
    """-1 with explicit assignments, or for the default."""
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    """Empty: the controller places the replicas."""
    configs: list[CreatableTopicConfig]


@message
class CreateTopicsRequest:
    topics: list[CreatableTopic]
    timeout_ms: Int32 = always(absent=60000)
    validate_only: Boolean = since(1, absent=False)


@message
class CreatableTopicConfigs:
    name: Text
    value: Text | None
    read_only: Boolean
    config_source: Int8 = always(absent=-1)
    is_sensitive: Boolean


@message
class CreatableTopicResult:
    name: Text
    topic_id: Uuid = since(7, absent=ZERO_UUID)
    error_code: Int16
    error_message: Text | None = since(1, absent="")
    topic_config_error_code: Int16 = tagged(0, since=5, absent=0)
    """Why `configs` is null, when the caller may not see them."""
    num_partitions: Int32 = since(5, absent=-1)
    replication_factor: Int16 = since(5, absent=-1)
    configs: list[CreatableTopicConfigs] | None = since(5, absent=list)


@message
class CreateTopicsResponse:
    throttle_time_ms: Int32 = since(2, absent=0)
    topics: list[CreatableTopicResult]
