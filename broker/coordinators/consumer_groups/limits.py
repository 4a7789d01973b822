"""The limits and settings of KIP-848 groups: the properties `group.consumer.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.broker.config.effective_config import group_value
from anabranch.broker.profiles.profile import profile_for
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings

BIDIRECTIONAL, UPGRADE, DOWNGRADE = "bidirectional", "upgrade", "downgrade"


@value(kw_only=True)
class ConsumerGroupLimits:
    """One group's limits, from the broker's properties and the group's configuration."""

    session_timeout_ms: int = 45000
    heartbeat_interval_ms: int = 5000
    size_max: int = 2147483647
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default for members that request none."""
    migration_policy: str = BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600000
    classic_size_max: int = 2147483647
    """The size above which a group is not downgraded to a classic group."""
    drops_expressions_at_once: bool = False
    """Whether a new epoch starts as soon as a member drops its expression, as from Kafka 4.2 on."""
    leave_group_removes_all_kinds: bool = False
    """Whether LeaveGroup removes members of the consumer protocol, as from Kafka 4.0 on."""

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members is upgraded when a member of the consumer protocol joins."""
        return self.migration_policy in (BIDIRECTIONAL, UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        """Whether a group with only classic members left is downgraded."""
        return self.migration_policy in (BIDIRECTIONAL, DOWNGRADE)


def limits_of(broker: BrokerSettings, given: Mapping[str, str]) -> ConsumerGroupLimits:
    """Return the limits of a group with this configuration."""
    shown = profile_for(broker.kafka_version)
    return ConsumerGroupLimits(
        session_timeout_ms=group_value(broker, given, "consumer.session.timeout.ms"),
        heartbeat_interval_ms=group_value(broker, given, "consumer.heartbeat.interval.ms"),
        size_max=broker.group_consumer_max_size,
        assignors=tuple(broker.group_consumer_assignors.split(",")),
        migration_policy=broker.group_consumer_migration_policy.lower(),
        classic_size_max=broker.group_max_size,
        drops_expressions_at_once=shown.drops_expressions_at_once,
        leave_group_removes_all_kinds=shown.leave_group_removes_all_kinds,
    )
