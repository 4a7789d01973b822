"""Broker and topic settings as a node works by them: typed, immutable, with Kafka's names and defaults.

A property is a field: `num.partitions` is `num_partitions`. The fields give types and defaults (Kafka 3.9's, D1, but
for the few that KIP-253 adds); the tables of `topic_properties` and `broker_properties` give the rest, among it the
names that Kafka knows and that have no effect here. `effective_config` turns `key=value` text into these settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.config.listeners import PLAINTEXT, Listener
from anabranch.broker.config.property_declaration import ConfigError as ConfigError
from anabranch.broker.config.property_declaration import parse_properties as parse_properties
from anabranch.broker.config.property_declaration import text_of
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.clients.security import Security

INT64_MAX: Final = 2**63 - 1
WEEK_MS: Final = 7 * 24 * 3600 * 1000


@value(kw_only=True)
class BrokerSettings:
    """All settings of a node. `node_id` is Kafka's `broker.id`."""

    node_id: int = 1
    roles: tuple[str, ...] = ("broker", "controller")
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str = ""
    """The host that clients and other nodes are told to connect to; empty: `host`."""
    advertised_port: int = 0
    """The port they connect to, if something stands before this node, such as a proxy; 0: the one it listens on."""
    listeners: tuple[Listener, ...] = ()
    """Where the node listens, if `listeners` or a protocol was set; the four fields above are the first one's then."""
    inter_broker_listener: str = PLAINTEXT
    """The name of the listener by which nodes reach each other."""
    security: Security | None = field(default=None, hash=False)
    """How this node is let in by the others; the node makes it of `given` when it starts."""
    authorizer_class_name: str = ""
    """Kafka's name of an authorizer; empty: everybody may do everything."""
    super_users: str = ""
    """Who may do everything: "User:admin;User:broker"."""
    allow_everyone_if_no_acl_found: bool = False
    """Whether what nobody has an entry for is everybody's."""
    rack: str = ""
    data_dir: str = ""
    """The directory of the logs; empty: they are in memory."""
    log_dirs: tuple[str, ...] = ()
    """Several directories for logs, in place of `data_dir`."""

    # network
    socket_request_max_bytes: int = 104857600
    queued_max_request_bytes: int = 104857600
    """Kafka has no bound by default."""
    queued_max_response_bytes: int = 134217728
    """Kafka has no such bound. A Fetch gets half of what is left: all of `fetch.max.bytes` while nothing is held."""
    max_request_partition_size_limit: int = 131072
    """Kafka's 2000 bounds DescribeTopicPartitions alone, which goes on where an answer ended; here every request."""
    connections_max_idle_ms: int = 600000
    max_connections: int = 10000
    max_connections_per_ip: int = 2147483647
    max_connections_per_ip_overrides: tuple[str, ...] = ()
    """Bounds of single addresses: "10.0.0.1:5"."""
    max_connection_creation_rate: int = 2147483647
    request_timeout_ms: int = 30000
    zookeeper_session_timeout_ms: int = 18000
    zookeeper_set_acl: bool = False
    """Whether znodes belong to the login of the nodes, so that nobody else changes them."""
    zookeeper_auth: str = field(default="", repr=False)
    """As whom this node does what it does in ZooKeeper: "digest:USER:PASSWORD"; empty: as nobody."""
    # topics
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    message_max_bytes: int = 1048588
    message_max_decompressed_ratio: int = 16
    """How many times `max.message.bytes` (or 1 MiB, if that is more) the records of a batch may be uncompressed."""
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
    log_message_timestamp_before_max_ms: int = INT64_MAX
    log_message_timestamp_after_max_ms: int = INT64_MAX
    log_message_timestamp_difference_max_ms: int = INT64_MAX
    log_message_downconversion_enable: bool = True
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    unclean_leader_election_enable: bool = False
    reshard_legacy_producers: str = "auto"
    reshard_legacy_consumers: str = "auto"
    reshard_legacy_consumers_uncommitted_ms: int = -1
    reshard_legacy_consumers_shrink: str = "auto"
    producer_id_expiration_ms: int = 86400000
    producer_id_expiration_check_interval_ms: int = 600000
    transaction_partition_verification_enable: bool = True
    """Whether the first batch of a transaction waits until its coordinator says that the partition is part of it."""
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
    group_coordinator_rebalance_protocols: str = ""
    """The protocols that groups may use; empty: those of the Kafka that the node shows itself as."""
    group_consumer_assignors: str = "uniform,range"
    group_consumer_heartbeat_interval_ms: int = 5000
    group_consumer_min_heartbeat_interval_ms: int = 5000
    group_consumer_max_heartbeat_interval_ms: int = 15000
    group_consumer_session_timeout_ms: int = 45000
    group_consumer_min_session_timeout_ms: int = 45000
    group_consumer_max_session_timeout_ms: int = 60000
    group_consumer_max_size: int = 2147483647
    group_consumer_migration_policy: str = "bidirectional"
    """Which groups may change their kind while members run."""
    # groups of Kafka Streams
    group_streams_heartbeat_interval_ms: int = 5000
    group_streams_min_heartbeat_interval_ms: int = 5000
    group_streams_max_heartbeat_interval_ms: int = 15000
    group_streams_session_timeout_ms: int = 45000
    group_streams_min_session_timeout_ms: int = 45000
    group_streams_max_session_timeout_ms: int = 60000
    group_streams_max_size: int = 2147483647
    group_streams_num_standby_replicas: int = 0
    group_streams_max_standby_replicas: int = 2
    group_streams_initial_rebalance_delay_ms: int = 3000
    # shared partitions
    group_share_delivery_count_limit: int = 5
    group_share_heartbeat_interval_ms: int = 5000
    group_share_session_timeout_ms: int = 45000
    group_share_max_size: int = 200
    group_share_max_share_sessions: int = 2000
    group_share_partition_max_record_locks: int = 2000
    group_share_record_lock_duration_ms: int = 30000
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_state_topic_num_partitions: int = 50
    share_coordinator_state_topic_replication_factor: int = 3
    share_coordinator_state_topic_min_isr: int = 2
    share_coordinator_state_topic_segment_bytes: int = 104857600
    # offsets
    offset_metadata_max_bytes: int = 4096
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104857600
    offsets_topic_compression_codec: int = 0
    offsets_retention_minutes: int = 10080
    offsets_retention_check_interval_ms: int = 600000
    offsets_commit_timeout_ms: int = 5000
    # transactions
    transaction_max_timeout_ms: int = 900000
    transactional_id_expiration_ms: int = WEEK_MS
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3600000
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    transaction_state_log_segment_bytes: int = 104857600
    # telemetry of clients
    client_telemetry_enable: bool = False
    telemetry_max_bytes: int = 1048576
    # requests between brokers
    inter_broker_requests_restricted: bool = False
    """Whether they are refused on other listeners than that between brokers; no property of Kafka's."""
    # what clients see
    kafka_version: str = "3.9"
    """Which Kafka the node shows to its clients (D19); no property of Kafka's."""
    kafka_release: str = ""
    """The Kafka with whose levels of features a new cluster begins, if it is not `kafka_version`."""
    # failure injection
    crash_at: str = ""
    """A step of controller or coordinator at which this process exits hard, such as "resize:after-plan"; for tests."""
    withheld_features: str = ""
    """Features, with commas between them, that this node pretends not to support, like an older release; for tests."""
    given: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """The properties that were given as text, also those that have no effect here."""

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories of the logs; none: they are in memory."""
        return self.log_dirs or ((self.data_dir,) if self.data_dir else ())

    @property
    def listening(self) -> tuple[Listener, ...]:
        """Every listener."""
        return self.listeners or (
            Listener(PLAINTEXT, PLAINTEXT, self.host, self.port, self.advertised_host, self.advertised_port),
        )

    @property
    def first_listener(self) -> Listener:
        """The one that users are told of when the node is ready."""
        return self.listening[0]

    @property
    def between_brokers(self) -> Listener:
        """The listener by which nodes reach each other."""
        return next(one for one in self.listening if one.name == self.inter_broker_listener)

    def bound(self, ports: Mapping[str, int]) -> BrokerSettings:
        """These settings with the ports that the listeners have got, by name."""
        first = self.first_listener
        listeners = tuple(dataclasses.replace(one, port=ports[one.name]) for one in self.listeners)
        return dataclasses.replace(self, port=ports[first.name], listeners=listeners)

    @property
    def is_broker(self) -> bool:
        """Whether this node holds replicas and registers under /brokers/ids."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether this node competes for /controller."""
        return "controller" in self.roles


@value(kw_only=True)
class TopicConfig:
    """One topic's effective settings: what /config/topics/T says, over the broker's defaults."""

    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
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
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = INT64_MAX
    message_timestamp_difference_max_ms: int = INT64_MAX
    message_downconversion_enable: bool = True
    """Whether consumers that only know message sets (Fetch v0 to v3) get them."""
    unclean_leader_election_enable: bool = False
    enable_ordered_delivery: bool = True
    """KIP-253: resizes keep the order of keys; false grows a topic the way Kafka does today."""
    reshard_legacy_producers: str = "auto"
    """R16: whether producers that know nothing of generations may write to a topic that was resized.

    "auto" stands here only where the topic says nothing of `enable.ordered.delivery`, which decides it otherwise.
    """
    reshard_legacy_consumers: str = "auto"
    """Whether coordinators hold the gates of members that hold none; "auto" and `enable.ordered.delivery` as above."""
    reshard_legacy_consumers_uncommitted_ms: int = -1
    """How long a group without a commit on a parent is waited for; -1: until it has one."""
    reshard_legacy_consumers_shrink: str = "auto"
    """Whether the topic may shrink while such members read it, whose order a merge breaks."""


_PROPERTY_OF: Final[Mapping[str, str]] = {"node_id": "broker.id", "rack": "broker.rack"}
WITHOUT_PROPERTY: Final = (
    *("host", "port", "advertised_host", "advertised_port", "listeners", "inter_broker_listener", "security"),
    *("roles", "data_dir", "given"),
)
"""Fields that Kafka has no property for, or another: options and `listeners` say them."""
_FIELD_OF: Final[Mapping[str, str]] = {"node.id": "node_id", "log.dir": "log_dirs"} | {
    name: field for field, name in _PROPERTY_OF.items()
}


def property_name(field: str) -> str:
    """Kafka's name of a settings field."""
    return _PROPERTY_OF.get(field) or field.replace("_", ".")


def field_name(name: str) -> str:
    """The settings field that holds a property, if there is one."""
    return _FIELD_OF.get(name) or name.replace(".", "_")


def own_default(settings: type[BrokerSettings] | type[TopicConfig], name: str) -> str | None:
    """The text of a property's default, from the field that holds it; None when there is no field."""
    if settings not in _DEFAULTS:
        none = ("", (), dataclasses.MISSING)
        fields = dataclasses.fields(settings)
        _DEFAULTS[settings] = {
            one.name: text_of(one.default) for one in fields if one.default not in none and one.name != "node_id"
        }
    return _DEFAULTS[settings].get(field_name(name))


_DEFAULTS: Final[dict[type[Any], Mapping[str, str]]] = {}
