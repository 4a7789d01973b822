"""Settings of a share group: its own, over the broker's."""

from __future__ import annotations

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.coordinators.share_partitions.share_settings import ShareSettings, settings_of


def test_defaults_are_the_brokers() -> None:
    assert settings_of(BrokerSettings(), {}) == ShareSettings()
    assert settings_of(BrokerSettings(group_share_delivery_count_limit=2), {}).delivery_limit == 2


def test_group_configs_override_the_defaults() -> None:
    given = {
        "share.auto.offset.reset": "by_duration:PT1M",
        "share.isolation.level": "read_committed",
        "share.record.lock.duration.ms": "15000",
    }
    found = settings_of(BrokerSettings(), given)
    assert (found.offset_reset, found.offset_reset_ms) == ("by_duration:", 60_000)
    assert (found.read_committed, found.lock_duration_ms) == (True, 15_000)


def test_failing_records_are_isolated_from_kafka_4_2_on() -> None:
    versions = ("4.1", "4.2")
    assert [settings_of(BrokerSettings(kafka_version=one), {}).isolates_failing for one in versions] == [False, True]
