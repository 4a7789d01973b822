"""Typed, immutable settings of brokers and topics, with Kafka's names.

A property is a field: `num.partitions` is `num_partitions`. The default of a DECLARED field comes from
`broker.config.config_def` (Kafka 3.9's, D1, except for the few that KIP-253 adds). `broker.config.effective_config`
parses `key=value` text into these settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anabranch.broker.config.config_def import ConfigError as ConfigError
from anabranch.broker.config.config_def import ConfigKey, Scope, config_def
from anabranch.broker.config.listeners import PLAINTEXT, Listener
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.clients.security import Security

INT64_MAX: Final = 2**63 - 1
WEEK_MS: Final = 7 * 24 * 3600 * 1000
DECLARED: Final[Any] = object()
"""Placeholder for the declared default of the field's property."""
Settings = TypeVar("Settings")

_PROPERTY_OF: Final[Mapping[str, str]] = {"node_id": "broker.id", "rack": "broker.rack"}
_FIELD_OF: Final[Mapping[str, str]] = {"node.id": "node_id", "log.dir": "log_dirs"} | {
    name: field for field, name in _PROPERTY_OF.items()
}


def property_name(field: str) -> str:
    """Kafka's name of a settings field."""
    return _PROPERTY_OF.get(field) or field.replace("_", ".")


def field_name(name: str) -> str:
    """The settings field of a property, whether or not the field exists."""
    return _FIELD_OF.get(name) or name.replace(".", "_")


def field_value(annotation: str, key: ConfigKey, text: str) -> object:
    """Parse a property's text into the value of a field with this annotation. Raises ConfigError."""
    parsed = key.parse(text)
    if annotation.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return parsed


def _with_declared_defaults(scope: Scope) -> Callable[[type[Settings]], type[Settings]]:
    def fill(settings: type[Settings]) -> type[Settings]:
        for name, annotation in settings.__annotations__.items():
            if vars(settings).get(name) is DECLARED:
                key = config_def(scope).keys_by_name()[property_name(name)]
                setattr(settings, name, field_value(annotation, key, key.default or ""))
        return settings

    return fill


@value(kw_only=True)
@_with_declared_defaults(Scope.BROKER)
class BrokerSettings:
    """All settings of a node. `node_id` is Kafka's `broker.id`."""

    node_id: int = 1
    roles: tuple[str, ...] = ("broker", "controller")
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str = ""
    """The host that clients and other nodes connect to; empty: `host`."""
    advertised_port: int = 0
    """The port that clients and other nodes connect to, such as a proxy's; 0: the port of the listener."""
    listeners: tuple[Listener, ...] = ()
    """The listeners, if `listeners` or a protocol is set; then the four fields above are those of the first."""
    inter_broker_listener: str = PLAINTEXT
    security: Security | None = field(default=None, hash=False)
    """This node's credentials for connections to other nodes, created from `given` at the start."""
    authorizer_class_name: str = DECLARED
    """Kafka's class name of an authorizer; empty: no authorization."""
    super_users: str = DECLARED
    """The principals that need no ACL: "User:admin;User:broker"."""
    allow_everyone_if_no_acl_found: bool = DECLARED
    """Whether every principal may use a resource without an ACL."""
    rack: str = ""
    data_dir: str = ""
    """The directory of the logs; empty: in memory."""
    log_dirs: tuple[str, ...] = ()
    """Several directories for logs, instead of `data_dir`."""

    # network
    socket_request_max_bytes: int = DECLARED
    queued_max_request_bytes: int = DECLARED
    """Kafka has no bound by default."""
    queued_max_response_bytes: int = DECLARED
    """Not in Kafka. A Fetch gets half of the remaining bytes: all of `fetch.max.bytes` while no response is held."""
    max_request_partition_size_limit: int = DECLARED
    """Bounds every request; Kafka's 2000 bounds only DescribeTopicPartitions, which is paginated."""
    connections_max_idle_ms: int = DECLARED
    max_connections: int = DECLARED
    max_connections_per_ip: int = DECLARED
    max_connections_per_ip_overrides: tuple[str, ...] = DECLARED
    """Limits of single addresses: "10.0.0.1:5"."""
    max_connection_creation_rate: int = DECLARED
    request_timeout_ms: int = DECLARED
    zookeeper_session_timeout_ms: int = DECLARED
    zookeeper_set_acl: bool = DECLARED
    """Whether only the nodes' login may write znodes."""
    zookeeper_auth: str = field(default="", repr=False)
    """This node's login at ZooKeeper, "digest:USER:PASSWORD"; empty: anonymous."""
    # topics
    auto_create_topics_enable: bool = DECLARED
    delete_topic_enable: bool = DECLARED
    num_partitions: int = DECLARED
    default_replication_factor: int = DECLARED
    min_insync_replicas: int = DECLARED
    message_max_bytes: int = DECLARED
    message_max_decompressed_ratio: int = DECLARED
    """The bound of a batch's uncompressed records, as a multiple of `max.message.bytes` (of 1 MiB, if that is more)."""
    log_segment_bytes: int = DECLARED
    log_roll_ms: int = WEEK_MS
    """Kafka's log.roll.hours."""
    log_retention_ms: int = WEEK_MS
    """Kafka's log.retention.hours."""
    log_retention_bytes: int = DECLARED
    log_retention_check_interval_ms: int = DECLARED
    log_segment_delete_delay_ms: int = DECLARED
    log_cleanup_policy: str = DECLARED
    log_cleaner_enable: bool = DECLARED
    log_cleaner_backoff_ms: int = DECLARED
    log_cleaner_delete_retention_ms: int = DECLARED
    log_cleaner_min_cleanable_ratio: float = DECLARED
    log_cleaner_min_compaction_lag_ms: int = DECLARED
    log_cleaner_max_compaction_lag_ms: int = DECLARED
    log_index_interval_bytes: int = DECLARED
    log_index_size_max_bytes: int = DECLARED
    log_message_timestamp_type: str = DECLARED
    log_flush_interval_messages: int = DECLARED
    log_message_timestamp_before_max_ms: int = DECLARED
    log_message_timestamp_after_max_ms: int = DECLARED
    log_message_timestamp_difference_max_ms: int = DECLARED
    log_message_downconversion_enable: bool = DECLARED
    compression_type: str = DECLARED
    compression_gzip_level: int = DECLARED
    compression_lz4_level: int = DECLARED
    compression_zstd_level: int = DECLARED
    unclean_leader_election_enable: bool = DECLARED
    reshard_legacy_producers: str = DECLARED
    reshard_legacy_consumers: str = DECLARED
    reshard_legacy_consumers_uncommitted_ms: int = DECLARED
    reshard_legacy_consumers_shrink: str = DECLARED
    producer_id_expiration_ms: int = DECLARED
    producer_id_expiration_check_interval_ms: int = DECLARED
    transaction_partition_verification_enable: bool = DECLARED
    """Whether a transaction's first batch waits until its coordinator confirms the partition."""
    # replication
    replica_lag_time_max_ms: int = DECLARED
    replica_fetch_max_bytes: int = DECLARED
    replica_fetch_wait_max_ms: int = DECLARED
    replica_fetch_min_bytes: int = DECLARED
    replica_fetch_response_max_bytes: int = DECLARED
    replica_fetch_backoff_ms: int = DECLARED
    replica_high_watermark_checkpoint_interval_ms: int = DECLARED
    fetch_max_bytes: int = DECLARED
    max_incremental_fetch_session_cache_slots: int = DECLARED
    replica_selector_class: str = ""
    """Empty: consumers read from leaders; Kafka's RackAwareReplicaSelector: from an in-sync replica in their rack."""
    controlled_shutdown_enable: bool = DECLARED
    controlled_shutdown_max_retries: int = DECLARED
    controlled_shutdown_retry_backoff_ms: int = DECLARED
    auto_leader_rebalance_enable: bool = DECLARED
    # groups
    group_min_session_timeout_ms: int = DECLARED
    group_max_session_timeout_ms: int = DECLARED
    group_initial_rebalance_delay_ms: int = DECLARED
    group_max_size: int = DECLARED
    group_coordinator_rebalance_protocols: str = ""
    """The enabled group protocols; empty: those of the compatibility profile."""
    group_consumer_assignors: str = DECLARED
    group_consumer_heartbeat_interval_ms: int = DECLARED
    group_consumer_min_heartbeat_interval_ms: int = DECLARED
    group_consumer_max_heartbeat_interval_ms: int = DECLARED
    group_consumer_session_timeout_ms: int = DECLARED
    group_consumer_min_session_timeout_ms: int = DECLARED
    group_consumer_max_session_timeout_ms: int = DECLARED
    group_consumer_max_size: int = DECLARED
    group_consumer_migration_policy: str = DECLARED
    """Which groups may change their protocol while they have members."""
    # streams groups
    group_streams_heartbeat_interval_ms: int = DECLARED
    group_streams_min_heartbeat_interval_ms: int = DECLARED
    group_streams_max_heartbeat_interval_ms: int = DECLARED
    group_streams_session_timeout_ms: int = DECLARED
    group_streams_min_session_timeout_ms: int = DECLARED
    group_streams_max_session_timeout_ms: int = DECLARED
    group_streams_max_size: int = DECLARED
    group_streams_num_standby_replicas: int = DECLARED
    group_streams_max_standby_replicas: int = DECLARED
    group_streams_initial_rebalance_delay_ms: int = DECLARED
    # share groups
    group_share_delivery_count_limit: int = DECLARED
    group_share_heartbeat_interval_ms: int = DECLARED
    group_share_session_timeout_ms: int = DECLARED
    group_share_max_size: int = DECLARED
    group_share_max_share_sessions: int = DECLARED
    group_share_partition_max_record_locks: int = DECLARED
    group_share_record_lock_duration_ms: int = DECLARED
    share_coordinator_snapshot_update_records_per_snapshot: int = DECLARED
    share_coordinator_state_topic_num_partitions: int = DECLARED
    share_coordinator_state_topic_replication_factor: int = DECLARED
    share_coordinator_state_topic_min_isr: int = DECLARED
    share_coordinator_state_topic_segment_bytes: int = DECLARED
    # offsets
    offset_metadata_max_bytes: int = DECLARED
    quota_window_num: int = DECLARED
    quota_window_size_seconds: int = DECLARED
    offsets_topic_num_partitions: int = DECLARED
    offsets_topic_replication_factor: int = DECLARED
    offsets_topic_segment_bytes: int = DECLARED
    offsets_topic_compression_codec: int = DECLARED
    offsets_retention_minutes: int = DECLARED
    offsets_retention_check_interval_ms: int = DECLARED
    offsets_commit_timeout_ms: int = DECLARED
    internal_topics_limited_to_live_brokers: bool = DECLARED
    """Whether a dead broker does not prevent the creation of internal topics; for clusters of tests. Not in Kafka."""
    # transactions
    transaction_max_timeout_ms: int = DECLARED
    transactional_id_expiration_ms: int = DECLARED
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = DECLARED
    transaction_remove_expired_transaction_cleanup_interval_ms: int = DECLARED
    transaction_state_log_num_partitions: int = DECLARED
    transaction_state_log_replication_factor: int = DECLARED
    transaction_state_log_min_isr: int = DECLARED
    transaction_state_log_segment_bytes: int = DECLARED
    # client telemetry
    client_telemetry_enable: bool = DECLARED
    telemetry_max_bytes: int = DECLARED
    # requests between brokers
    inter_broker_requests_restricted: bool = DECLARED
    """Whether only the inter-broker listener accepts requests between brokers. Not in Kafka."""
    # compatibility profile
    kafka_version: str = DECLARED
    """The version of Kafka that the node shows to clients (D19). Not in Kafka."""
    kafka_release: str = DECLARED
    """The version of Kafka whose feature levels a new cluster finalizes, if not `kafka_version`."""
    # failure injection
    crash_at: str = DECLARED
    """A step of controller or coordinator at which this process exits, such as "resize:after-plan"; for tests."""
    withheld_features: str = DECLARED
    """Comma-separated features that this node does not advertise, as an older release; for tests."""
    given: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """The properties that were set as text, including those without effect."""

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories of the logs; none: in memory."""
        return self.log_dirs or ((self.data_dir,) if self.data_dir else ())

    @property
    def listening(self) -> tuple[Listener, ...]:
        """Every listener."""
        return self.listeners or (
            Listener(PLAINTEXT, PLAINTEXT, self.host, self.port, self.advertised_host, self.advertised_port),
        )

    @property
    def first_listener(self) -> Listener:
        """The listener whose address the command line prints when the node is ready."""
        return self.listening[0]

    @property
    def between_brokers(self) -> Listener:
        """The listener for connections between nodes."""
        return next(one for one in self.listening if one.name == self.inter_broker_listener)

    def bound(self, ports: Mapping[str, int]) -> BrokerSettings:
        """Return these settings with the ports that the system assigned, by listener name."""
        first = self.first_listener
        listeners = tuple(dataclasses.replace(one, port=ports[one.name]) for one in self.listeners)
        return dataclasses.replace(self, port=ports[first.name], listeners=listeners)

    @property
    def is_broker(self) -> bool:
        """Whether this node has replicas and registers under /brokers/ids."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether this node competes for /controller."""
        return "controller" in self.roles


@value(kw_only=True)
@_with_declared_defaults(Scope.TOPIC)
class TopicConfig:
    """One topic's effective settings: /config/topics/T over the broker's defaults."""

    cleanup_policy: str = DECLARED
    compression_type: str = DECLARED
    compression_gzip_level: int = DECLARED
    compression_lz4_level: int = DECLARED
    compression_zstd_level: int = DECLARED
    min_insync_replicas: int = DECLARED
    max_message_bytes: int = DECLARED
    segment_bytes: int = DECLARED
    segment_ms: int = DECLARED
    retention_ms: int = DECLARED
    retention_bytes: int = DECLARED
    file_delete_delay_ms: int = DECLARED
    delete_retention_ms: int = DECLARED
    min_cleanable_dirty_ratio: float = DECLARED
    min_compaction_lag_ms: int = DECLARED
    max_compaction_lag_ms: int = DECLARED
    index_interval_bytes: int = DECLARED
    segment_index_bytes: int = DECLARED
    flush_messages: int = DECLARED
    message_timestamp_type: str = DECLARED
    message_timestamp_before_max_ms: int = DECLARED
    message_timestamp_after_max_ms: int = DECLARED
    message_timestamp_difference_max_ms: int = DECLARED
    message_downconversion_enable: bool = DECLARED
    """Whether batches are down-converted for consumers that only know message sets (Fetch v0 to v3)."""
    unclean_leader_election_enable: bool = DECLARED
    enable_ordered_delivery: bool = DECLARED
    """Whether resizes keep the order of keys (KIP-253); false: partitions are added as in Kafka."""
    reshard_legacy_producers: str = DECLARED
    """R16: whether producers without generations may write to a resized topic.

    "auto" becomes "refuse" or "allow" where the topic sets `enable.ordered.delivery`.
    """
    reshard_legacy_consumers: str = DECLARED
    """Whether coordinators hold the gates for stock consumers; `enable.ordered.delivery` replaces "auto" as above."""
    reshard_legacy_consumers_uncommitted_ms: int = DECLARED
    """How long a gate waits for a group without a commit on the parent, in ms; -1: without bound."""
    reshard_legacy_consumers_shrink: str = DECLARED
    """Whether the topic may shrink while stock consumers, whose order a merge breaks, read it."""
