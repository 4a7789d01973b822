"""What a controller can be told. Names and defaults are Kafka 3.9's where Kafka has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.clients.security import Security


@value(kw_only=True)
class ControllerSettings:
    """One candidate's settings; `host` and `port` go to /controller, so that brokers find nodes without replicas."""

    node_id: int
    host: str = "127.0.0.1"
    port: int = 9092
    inter_broker_listener: str = "PLAINTEXT"
    """The name of the listener by which this controller reaches the brokers."""
    security: Security | None = None
    """How they let it in; None: neither TLS nor a login."""
    request_timeout_ms: int = 30000
    """How long a broker may take to answer; then its connection is opened anew and the request is sent again."""
    retry_backoff_ms: int = 100
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_first_check_ms: int = 5_000
    leader_imbalance_per_broker_percentage: int = 10
    preferred_election_delay_ms: int = 1_000
    """How soon after a preferred leader is back in sync it leads again; 0 leaves that to the periodic check alone."""
    drained_check_interval_ms: int = 5_000
    """How often partitions that are marked for deletion are asked whether anything is left in them."""
    remind_interval_ms: int = 1_000
    """How soon a broker whose disk refused a partition is told of it again."""
    first_features: Mapping[str, int] = field(default_factory=lambda: {"reshard.version": 1}, hash=False)
    """What a new cluster finalizes if all its brokers support it: feature -> level."""
    crash_at: str = ""
    """The step at which this process exits hard, such as "resize:after-plan"; for demonstrations and tests."""
