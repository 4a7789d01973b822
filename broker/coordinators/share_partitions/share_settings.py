"""The settings of a share group: the broker's properties and the group's configuration (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.broker.config.effective_config import BY_DURATION, ISOLATION, LATEST, RESET, duration_ms, group_value
from anabranch.broker.profiles.profile import profile_for
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings


@value(kw_only=True)
class ShareSettings:
    """The settings of one share group."""

    offset_reset: str = LATEST
    """The start of a group in a partition that it has never read."""
    offset_reset_ms: int | None = None
    """The age of the first record to read, with `by_duration`."""
    read_committed: bool = False
    delivery_limit: int = 5
    isolates_failing: bool = False
    """Whether records with many deliveries are delivered in small parts, and alone for the last time."""
    max_locks: int = 2000
    lock_duration_ms: int = 30000
    session_timeout_ms: int = 45000
    heartbeat_interval_ms: int = 5000
    size_max: int = 200


def settings_of(broker: BrokerSettings, given: Mapping[str, str]) -> ShareSettings:
    """Return the settings of a group with this configuration."""
    reset = given.get(RESET, LATEST)
    return ShareSettings(
        offset_reset=BY_DURATION if reset.startswith(BY_DURATION) else reset,
        offset_reset_ms=duration_ms(reset) if reset.startswith(BY_DURATION) else None,
        read_committed=given.get(ISOLATION) == "read_committed",
        delivery_limit=broker.group_share_delivery_count_limit,
        isolates_failing=profile_for(broker.kafka_version).isolates_failing_records,
        max_locks=broker.group_share_partition_max_record_locks,
        lock_duration_ms=group_value(broker, given, "share.record.lock.duration.ms"),
        session_timeout_ms=group_value(broker, given, "share.session.timeout.ms"),
        heartbeat_interval_ms=group_value(broker, given, "share.heartbeat.interval.ms"),
        size_max=broker.group_share_max_size,
    )
