"""The controller's settings. Names and defaults are Kafka 3.9's if Kafka has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.clients.security import Security


@value(kw_only=True)
class ControllerSettings:
    """One candidate's settings; `host` and `port` go to /controller, for brokers that look for the controller."""

    node_id: int
    host: str = "127.0.0.1"
    port: int = 9092
    inter_broker_listener: str = "PLAINTEXT"
    """The name of the brokers' listener that this controller connects to."""
    security: Security | None = None
    """The security of these connections; None: neither TLS nor a login."""
    request_timeout_ms: int = 30000
    """A broker's response timeout; then the connection is reopened and the request resent."""
    retry_backoff_ms: int = 100
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    log_cleanup_policy: str = "delete"
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_first_check_ms: int = 5_000
    leader_imbalance_per_broker_percentage: int = 10
    preferred_election_delay_ms: int = 1_000
    """How soon a preferred leader that is back in sync is elected; 0 leaves that to the periodic check."""
    drained_check_interval_ms: int = 5_000
    """Interval of checks whether partitions marked for deletion still hold records."""
    remind_interval_ms: int = 1_000
    """How soon a partition that a broker's disk refused is sent to it again."""
    first_features: Mapping[str, int] = field(default_factory=lambda: {"reshard.version": 1}, hash=False)
    """Feature -> level that a new cluster finalizes if all its brokers support it."""
    crash_at: str = ""
    """The step at which this process crashes, such as "resize:after-plan"; for demonstrations and tests."""
