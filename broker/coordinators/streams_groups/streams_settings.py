"""The settings of a group of Kafka Streams: the broker's, and what was set for the group (KIP-1071)."""

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
    """One group's settings."""

    session_timeout_ms: int = 45000
    heartbeat_interval_ms: int = 5000
    size_max: int = 2147483647
    standbys: int = 0
    """How many copies of a task's state are kept beside the active one."""
    initial_delay_ms: int = 0
    """How long the first members of a group wait for others before tasks are dealt."""

    @property
    def assignment_configs(self) -> Mapping[str, str]:
        """What tasks are dealt by: another value of it means another epoch of the group."""
        return {STANDBYS: str(self.standbys)}


def settings_of(broker: BrokerSettings, given: Mapping[str, str]) -> StreamsSettings:
    """The settings of a group, given what was set for it."""
    return StreamsSettings(
        session_timeout_ms=group_value(broker, given, "streams.session.timeout.ms"),
        heartbeat_interval_ms=group_value(broker, given, "streams.heartbeat.interval.ms"),
        size_max=broker.group_streams_max_size,
        standbys=group_value(broker, given, "streams.num.standby.replicas"),
        initial_delay_ms=group_value(broker, given, "streams.initial.rebalance.delay.ms"),
    )
