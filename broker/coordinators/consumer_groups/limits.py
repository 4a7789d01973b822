"""What a broker allows, and asks of, the KIP-848 groups: its properties `group.consumer.*`."""

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
    """One group's limits: the broker's, and what was set for the group."""

    session_timeout_ms: int = 45000
    heartbeat_interval_ms: int = 5000
    size_max: int = 2147483647
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one serves groups whose members ask for none."""
    migration_policy: str = BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600000
    classic_size_max: int = 2147483647
    """The size of a classic group, above which none is made of a group of this kind."""
    drops_expressions_at_once: bool = False
    """Whether the group begins a new epoch when a member drops its expression, as from Kafka 4.2 on."""
    leave_group_removes_all_kinds: bool = False
    """Whether LeaveGroup removes members that speak the consumer protocol, as from Kafka 4.0 on."""

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members becomes one of this kind when a member of this kind joins."""
        return self.migration_policy in (BIDIRECTIONAL, UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        """Whether a group of which only classic members are left becomes a classic one."""
        return self.migration_policy in (BIDIRECTIONAL, DOWNGRADE)


def limits_of(broker: BrokerSettings, given: Mapping[str, str]) -> ConsumerGroupLimits:
    """The limits of a group, given what was set for it."""
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
