"""The settings of a group that shares partitions: the broker's, and what was set for the group (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config import BrokerSettings

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration"


@value(kw_only=True)
class ShareSettings:
    """One group's settings."""

    offset_reset: str = LATEST
    """Where a group begins in a partition that it has never read."""
    offset_reset_ms: int | None = None
    """That long ago, with `by_duration`."""
    read_committed: bool = False
    delivery_limit: int = 5
    max_locks: int = 2000
    lock_duration_ms: int = 30000
    session_timeout_ms: int = 45000
    heartbeat_interval_ms: int = 5000
    size_max: int = 200


def settings_of(broker: BrokerSettings) -> ShareSettings:
    """The settings of a group for which nothing was set."""
    return ShareSettings(
        delivery_limit=broker.group_share_delivery_count_limit,
        max_locks=broker.group_share_partition_max_record_locks,
        lock_duration_ms=broker.group_share_record_lock_duration_ms,
        session_timeout_ms=broker.group_share_session_timeout_ms,
        heartbeat_interval_ms=broker.group_share_heartbeat_interval_ms,
        size_max=broker.group_share_max_size,
    )
