"""The settings of a streams group: the broker's properties and the group's configuration (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.effective_config import group_value
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings

STANDBYS: Final = "num.standby.replicas"


@value(kw_only=True)
class StreamsSettings:
    """The settings of one streams group."""

    session_timeout_ms: int = 45000
    heartbeat_interval_ms: int = 5000
    size_max: int = 2147483647
    standbys: int = 0
    """The number of standby copies of each stateful task."""
    initial_delay_ms: int = 0
    """The time that a new group waits for more members before it assigns tasks."""

    @property
    def assignment_configs(self) -> Mapping[str, str]:
        """The settings that affect the assignment; a change starts a new group epoch."""
        return {STANDBYS: str(self.standbys)}


def settings_of(broker: BrokerSettings, given: Mapping[str, str]) -> StreamsSettings:
    """Return the settings of a group with this configuration."""
    return StreamsSettings(
        session_timeout_ms=group_value(broker, given, "streams.session.timeout.ms"),
        heartbeat_interval_ms=group_value(broker, given, "streams.heartbeat.interval.ms"),
        size_max=broker.group_streams_max_size,
        standbys=group_value(broker, given, "streams.num.standby.replicas"),
        initial_delay_ms=group_value(broker, given, "streams.initial.rebalance.delay.ms"),
    )
