"""What a group may be set to, and what it goes by."""

from __future__ import annotations

import pytest

from anabranch.broker.administration.config_entries import group_entries
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.group_properties import check, default_of, duration_ms, effective, group_properties
from anabranch.broker.config.property_declaration import ConfigError
from anabranch.protocol.errors import ErrorCode, KafkaError

SETTINGS = BrokerSettings(group_share_record_lock_duration_ms=20_000)


def test_what_is_not_set_is_the_brokers() -> None:
    assert effective(SETTINGS, {}, "share.record.lock.duration.ms") == 20_000
    assert effective(SETTINGS, {"share.record.lock.duration.ms": "15000"}, "share.record.lock.duration.ms") == 15_000
    defaults = {name: default_of(SETTINGS, key) for name, key in group_properties().items()}
    assert (defaults["share.record.lock.duration.ms"], defaults["share.auto.offset.reset"]) == ("20000", "latest")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("consumer.session.timeout", "1", "Unknown"),
        ("consumer.session.timeout.ms", "soon", "whole number"),
        ("consumer.session.timeout.ms", "44999", "at least group.consumer.min.session.timeout.ms=45000"),
        ("share.record.lock.duration.ms", "60001", "at most group.share.max.record.lock.duration.ms=60000"),
        ("consumer.heartbeat.interval.ms", "4999", "at least"),
        ("share.isolation.level", "serializable", "read_committed"),
        ("share.auto.offset.reset", "by_duration:1h", "by_duration:P1DT2H30M"),
        ("share.auto.offset.reset", "newest", "earliest"),
        ("streams.session.timeout.ms", "44999", "at least group.streams.min.session.timeout.ms=45000"),
        ("streams.heartbeat.interval.ms", "15001", "at most group.streams.max.heartbeat.interval.ms=15000"),
        ("streams.num.standby.replicas", "3", "at most group.streams.max.standby.replicas=2"),
        ("streams.initial.rebalance.delay.ms", "-1", "at least 0"),
    ],
)
def test_what_a_group_cannot_be_set_to(name: str, text: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        check(SETTINGS, {name: text})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_what_a_group_can_be_set_to() -> None:
    check(SETTINGS, {"share.auto.offset.reset": "by_duration:PT1H", "consumer.session.timeout.ms": "60000"})
    short = BrokerSettings(group_consumer_min_session_timeout_ms=1000, group_consumer_min_heartbeat_interval_ms=100)
    check(short, {"consumer.session.timeout.ms": "1000", "consumer.heartbeat.interval.ms": "999"})
    with pytest.raises(KafkaError, match="less than"):
        check(short, {"consumer.session.timeout.ms": "1000", "consumer.heartbeat.interval.ms": "1000"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("P1DT2H3M4.5S", ((24 + 2) * 60 + 3) * 60_000 + 4_500), ("PT0.001S", 1), ("p2d", 172_800_000)],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(f"by_duration:{text}") == expected


@pytest.mark.parametrize("text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1H", "PT1H"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError):
        duration_ms(text)


def test_a_version_shows_only_what_it_has() -> None:
    def streams(version: str) -> list[str]:
        rows = group_entries(BrokerSettings(kafka_version=version), {})
        assert {row.name for row in rows} >= {"consumer.session.timeout.ms", "share.isolation.level"}
        return [row.name for row in rows if row.name.startswith("streams.")]

    later = "streams.initial.rebalance.delay.ms"
    assert (later in streams("4.2"), later in streams("4.1")) == (True, False)
    assert len(streams("4.2")) == len(streams("4.1")) + 1 == 4
