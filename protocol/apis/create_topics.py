"""CreateTopics (key 19), v0-v7, flexible from v5.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import ZERO_UUID, Boolean, Int16, Int32, Int8, Text, Uuid, always, since, tagged


@dataclass(slots=True, kw_only=True)
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32]


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfig:
    name: Text
    value: Text | None


@dataclass(slots=True, kw_only=True)
class CreatableTopic:
    name: Text
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest:
    topics: list[CreatableTopic]
    timeout_ms: Int32 = always(absent=60000)
    validate_only: Boolean = since(1, absent=False)


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfigs:
    name: Text
    value: Text | None
    read_only: Boolean
    config_source: Int8 = always(absent=-1)
    is_sensitive: Boolean


@dataclass(slots=True, kw_only=True)
class CreatableTopicResult:
    name: Text
    topic_id: Uuid = since(7, absent=ZERO_UUID)
    error_code: Int16
    error_message: Text | None = since(1, absent="")
    topic_config_error_code: Int16 = tagged(0, since=5, absent=0)
    num_partitions: Int32 = since(5, absent=-1)
    replication_factor: Int16 = since(5, absent=-1)
    configs: list[CreatableTopicConfigs] | None = since(5, absent=list)


@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse:
    throttle_time_ms: Int32 = since(2, absent=0)
    topics: list[CreatableTopicResult]
