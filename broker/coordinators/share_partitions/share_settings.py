"""The settings of a group that shares partitions: the broker's, and what was set for the group (KIP-932)."""

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
    """One group's settings."""

    offset_reset: str = LATEST
    """Where a group begins in a partition that it has never read."""
    offset_reset_ms: int | None = None
    """That long ago, with `by_duration`."""
    read_committed: bool = False
    delivery_limit: int = 5
    isolates_failing: bool = False
    """Whether records that were delivered often come with few others, and for the last time alone."""
    max_locks: int = 2000
    lock_duration_ms: int = 30000
    session_timeout_ms: int = 45000
    heartbeat_interval_ms: int = 5000
    size_max: int = 200


def settings_of(broker: BrokerSettings, given: Mapping[str, str]) -> ShareSettings:
    """The settings of a group, given what was set for it."""
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
