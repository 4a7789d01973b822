"""Broker and topic settings: Kafka's property names, defaults and checks.

A property is a field: `num.partitions` is `num_partitions`, so the dataclasses below are the only table there is.
`with_properties` turns `key=value` text into settings and says what is wrong, and what to write instead, when it
cannot.
Defaults are Kafka 3.9's (architecture D1), but for the few that KIP-253 adds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from protocol.errors import ErrorCode, KafkaError

INT64_MAX: Final = 2**63 - 1
WEEK_MS: Final = 7 * 24 * 3600 * 1000


class ConfigError(ValueError):
    """A setting that cannot be used; the message says which and what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Everything a node can be told. `node_id` is Kafka's `broker.id`."""

    node_id: int = 1
    roles: tuple[str, ...] = ("broker", "controller")
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str = ""
    """What clients and other nodes connect to; empty: `host`."""
    advertised_port: int = 0
    """The port they connect to, if something stands before this node, such as a proxy; 0: the one it listens on."""
    rack: str = ""
    data_dir: str = ""
    """Empty: everything in memory."""

    # network
    socket_request_max_bytes: int = 104857600
    connections_max_idle_ms: int = 600000
    max_connections: int = 10000
    request_timeout_ms: int = 30000
    zookeeper_session_timeout_ms: int = 18000
    # topics
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    message_max_bytes: int = 1048588
    log_segment_bytes: int = 1073741824
    log_roll_ms: int = WEEK_MS
    log_retention_ms: int = WEEK_MS
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300000
    log_segment_delete_delay_ms: int = 60000
    log_cleanup_policy: str = "delete"
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15000
    log_cleaner_delete_retention_ms: int = 86400000
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_max_compaction_lag_ms: int = INT64_MAX
    log_index_interval_bytes: int = 4096
    log_index_size_max_bytes: int = 10485760
    log_message_timestamp_type: str = "CreateTime"
    log_flush_interval_messages: int = INT64_MAX
    compression_type: str = "producer"
    unclean_leader_election_enable: bool = False
    producer_id_expiration_ms: int = 86400000
    # replication
    replica_lag_time_max_ms: int = 30000
    replica_fetch_max_bytes: int = 1048576
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_response_max_bytes: int = 10485760
    replica_fetch_backoff_ms: int = 1000
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    fetch_max_bytes: int = 57671680
    max_incremental_fetch_session_cache_slots: int = 1000
    replica_selector_class: str = ""
    """Empty: consumers read from leaders; Kafka's rack-aware one sends them to an in-sync replica in their rack."""
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5000
    auto_leader_rebalance_enable: bool = True
    # groups
    group_min_session_timeout_ms: int = 6000
    group_max_session_timeout_ms: int = 1800000
    group_initial_rebalance_delay_ms: int = 3000
    group_max_size: int = 2147483647
    offset_metadata_max_bytes: int = 4096
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104857600
    offsets_topic_compression_codec: int = 0
    offsets_retention_minutes: int = 10080
    offsets_retention_check_interval_ms: int = 600000
    offsets_commit_timeout_ms: int = 5000
    # failure injection
    crash_at: str = ""
    """A controller step at which this process exits hard, such as "resize:after-plan"; for demonstrations and tests."""

    @property
    def reachable_host(self) -> str:
        """The host that others are told."""
        return self.advertised_host or self.host

    def reachable_port(self, listening: int) -> int:
        """The port that others are told, by a node that got to listen on this one."""
        return self.advertised_port or listening

    @property
    def is_broker(self) -> bool:
        """Whether this node holds replicas and registers under /brokers/ids."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether this node competes for /controller."""
        return "controller" in self.roles


CleanupPolicy = Literal["delete", "compact", "compact,delete"]
LegacyProducers = Literal["reject", "allow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic's effective settings: what /config/topics/T says, over the broker's defaults."""

    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    min_insync_replicas: int = 1
    max_message_bytes: int = 1048588
    segment_bytes: int = 1073741824
    segment_ms: int = WEEK_MS
    retention_ms: int = WEEK_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60000
    delete_retention_ms: int = 86400000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10485760
    flush_messages: int = INT64_MAX
    message_timestamp_type: str = "CreateTime"
    unclean_leader_election_enable: bool = False
    enable_ordered_delivery: bool = True
    """KIP-253: resizes keep the order of keys; false grows a topic the way Kafka does today."""
    reshard_legacy_producers: str = "reject"
    """R16: whether producers that know nothing of generations may write to partitions a resize has touched."""


# topic property -> the broker property that gives its default (facts section 10)
TOPIC_DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup_policy": "log_cleanup_policy",
    "compression_type": "compression_type",
    "min_insync_replicas": "min_insync_replicas",
    "max_message_bytes": "message_max_bytes",
    "segment_bytes": "log_segment_bytes",
    "segment_ms": "log_roll_ms",
    "retention_ms": "log_retention_ms",
    "retention_bytes": "log_retention_bytes",
    "file_delete_delay_ms": "log_segment_delete_delay_ms",
    "delete_retention_ms": "log_cleaner_delete_retention_ms",
    "min_cleanable_dirty_ratio": "log_cleaner_min_cleanable_ratio",
    "min_compaction_lag_ms": "log_cleaner_min_compaction_lag_ms",
    "max_compaction_lag_ms": "log_cleaner_max_compaction_lag_ms",
    "index_interval_bytes": "log_index_interval_bytes",
    "segment_index_bytes": "log_index_size_max_bytes",
    "flush_messages": "log_flush_interval_messages",
    "message_timestamp_type": "log_message_timestamp_type",
    "unclean_leader_election_enable": "unclean_leader_election_enable",
}

_LEAST: Final[Mapping[str, int]] = {
    "min_insync_replicas": 1,
    "max_message_bytes": 0,
    "message_max_bytes": 0,
    "segment_bytes": 14,
    "log_segment_bytes": 14,
    "segment_ms": 1,
    "retention_ms": -1,
    "log_retention_ms": -1,
    "retention_bytes": -1,
    "log_retention_bytes": -1,
    "delete_retention_ms": 0,
    "log_cleaner_delete_retention_ms": 0,
    "log_cleaner_backoff_ms": 0,
    "min_compaction_lag_ms": 0,
    "log_cleaner_min_compaction_lag_ms": 0,
    "max_compaction_lag_ms": 1,
    "log_cleaner_max_compaction_lag_ms": 1,
    "max_incremental_fetch_session_cache_slots": 0,
    "num_partitions": 1,
    "default_replication_factor": 1,
    "socket_request_max_bytes": 1,
    "max_connections": 1,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "node_id": 0,
    "port": 0,
}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup_policy": ("delete", "compact", "compact,delete", "delete,compact"),
    "log_cleanup_policy": ("delete", "compact", "compact,delete", "delete,compact"),
    "compression_type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message_timestamp_type": ("CreateTime", "LogAppendTime"),
    "log_message_timestamp_type": ("CreateTime", "LogAppendTime"),
    "reshard_legacy_producers": ("reject", "allow"),
    "replica_selector_class": ("", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
}
# Properties of Kafka's topics that are accepted, remembered and described, and change nothing yet.
INERT_TOPIC_PROPERTIES: Final = frozenset(
    {
        "flush.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "preallocate",
        "segment.jitter.ms",
    }
)

Settings = TypeVar("Settings", BrokerSettings, TopicConfig)


def property_name(field: str) -> str:
    """Kafka's name of a settings field."""
    return "broker.id" if field == "node_id" else field.replace("_", ".")


def with_properties(settings: Settings, properties: Mapping[str, str]) -> Settings:
    """These settings with `key=value` properties applied; ConfigError names the first one that is wrong."""
    fields = {property_name(field.name): field for field in dataclasses.fields(settings)}
    changes: dict[str, Any] = {}
    for name, text in properties.items():
        if name in INERT_TOPIC_PROPERTIES and isinstance(settings, TopicConfig):
            continue
        if name not in fields:
            raise ConfigError(f"unknown property {name!r}{_did_you_mean(name, fields)}")
        changes[fields[name].name] = _parse(fields[name], name, text)
    return dataclasses.replace(settings, **changes)


def parse_properties(pairs: list[str] | tuple[str, ...]) -> dict[str, str]:
    """`["num.partitions=3"]` -> `{"num.partitions": "3"}`."""
    properties = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{pair!r} is not a setting; write NAME=VALUE, for example num.partitions=3")
        properties[name.strip()] = value.strip()
    return properties


def topic_config(settings: BrokerSettings, properties: Mapping[str, str]) -> TopicConfig:
    """The effective configuration of a topic. Raises KafkaError(INVALID_CONFIG)."""
    defaults = TopicConfig(**{topic: getattr(settings, broker) for topic, broker in TOPIC_DEFAULTS.items()})
    try:
        return with_properties(defaults, properties)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _parse(field: dataclasses.Field[Any], name: str, text: str) -> Any:
    kind = str(field.type)
    if kind == "int":
        return _parse_int(field.name, name, text)
    if kind == "float":
        return _parse_ratio(name, text)
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name}={text!r} must be true or false")
        return text.lower() == "true"
    if kind.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    choices = _CHOICES.get(field.name)
    if choices is not None and text not in choices:
        raise ConfigError(f"{name}={text!r} must be one of {', '.join(choices)}")
    return text


def _parse_int(field: str, name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r} must be a whole number") from None
    least = _LEAST.get(field)
    if (least is not None and number < least) or not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise ConfigError(f"{name}={text} must be at least {least if least is not None else -INT64_MAX - 1}")
    return number


def _parse_ratio(name: str, text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r} must be a number") from None
    if not 0 <= ratio <= 1:
        raise ConfigError(f"{name}={text} must be between 0 and 1")
    return ratio


def _did_you_mean(name: str, known: Mapping[str, Any]) -> str:
    import difflib  # only on the way to an error

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
