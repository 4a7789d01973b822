"""Settings from text: types, inheritance, and errors with a remedy."""

from __future__ import annotations

import re

import pytest

from anabranch.broker.administration.config_entries import broker_entries
from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.config.config_def import ConfigError, Scope, config_def
from anabranch.broker.config.dynamic_config import DynamicConfig
from anabranch.broker.config.effective_config import (
    check_group_config,
    check_topic_properties,
    duration_ms,
    group_default,
    group_value,
    topic_config,
    with_profile_defaults,
    with_properties,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

SETTINGS = BrokerSettings(group_share_record_lock_duration_ms=20_000)
LATEST = "log.message.timestamp.after.max.ms"


def test_properties_become_typed_fields() -> None:
    settings = with_properties(
        BrokerSettings(),
        {
            "num.partitions": "4",
            "auto.create.topics.enable": "FALSE",
            "broker.id": "7",
            "log.cleanup.policy": "compact",
        },
    )
    assert (settings.num_partitions, settings.auto_create_topics_enable) == (4, False)
    assert (settings.node_id, settings.log_cleanup_policy) == (7, "compact")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"num.partitons": "4"}, "unknown property 'num.partitons'; did you mean num.partitions?"),
        ({"num.partitions": "many"}, "num.partitions='many' must be a whole number"),
        ({"num.partitions": "0"}, "num.partitions=0 must be at least 1"),
        ({"auto.create.topics.enable": "yes"}, "auto.create.topics.enable='yes' must be true or false"),
        ({"log.cleanup.policy": "keep"}, "log.cleanup.policy='keep' must be one of compact, delete"),
    ],
)
def test_refusal_names_the_invalid_property(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_properties(BrokerSettings(), properties)
    assert message in str(caught.value)


def test_a_topic_inherits_from_its_broker() -> None:
    settings = with_properties(BrokerSettings(), {"min.insync.replicas": "2", "log.retention.ms": "1000"})
    config = topic_config(settings, {"retention.ms": "-1", "reshard.legacy.producers": "allow"})
    assert (config.min_insync_replicas, config.retention_ms) == (2, -1)
    assert (config.reshard_legacy_producers, config.enable_ordered_delivery) == ("allow", True)


def test_topic_accepts_unsupported_kafka_properties_and_refuses_unknown_ones() -> None:
    topic_config(BrokerSettings(), {"min.compaction.lag.ms": "5"})
    with pytest.raises(KafkaError) as caught:
        topic_config(BrokerSettings(), {"retention": "5"})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_topic_defaults_equal_the_brokers() -> None:
    assert topic_config(BrokerSettings(), {}) == TopicConfig()


def test_unsupported_kafka_properties_are_accepted_and_checked() -> None:
    assert with_properties(BrokerSettings(), {"num.io.threads": "3"}).given == {"num.io.threads": "3"}
    with pytest.raises(ConfigError, match=r"num\.io\.threads=0 must be at least 1"):
        with_properties(BrokerSettings(), {"num.io.threads": "0"})


@pytest.mark.parametrize(
    ("version", "name", "text"),
    [
        ("4.0", "share.coordinator.threads", "2"),
        ("3.9", "share.coordinator.threads", "2"),
        ("4.2", "group.coordinator.append.linger.ms", "-1"),
        ("4.1", "group.streams.max.size", "7"),
        ("4.0", "zookeeper.connect", "a:2181"),
    ],
)
def test_a_node_starts_with_properties_of_every_version(version: str, name: str, text: str) -> None:
    assert with_properties(BrokerSettings(kafka_version=version), {name: text}).given == {name: text}


def test_bounds_of_the_kafka_version_in_the_same_properties_apply() -> None:
    linger = {"group.coordinator.append.linger.ms": "-1"}
    assert with_properties(BrokerSettings(), {"kafka.version": "4.2", **linger}).given == linger
    with pytest.raises(ConfigError, match="at least 0"):
        with_properties(BrokerSettings(kafka_version="4.2"), {"kafka.version": "4.1", **linger})


def test_internal_property_is_accepted_and_not_described() -> None:
    settings = with_properties(BrokerSettings(), {"super.users": "User:a"})
    assert (settings.super_users, settings.given) == ("User:a", {})
    with pytest.raises(ConfigError, match="unknown property"):
        with_properties(settings, {"listener.name.plaintext.super.users": "User:a"})


def test_finest_time_unit_takes_precedence() -> None:
    hours = {"log.retention.hours": "2", "log.roll.hours": "3"}
    settings = with_properties(BrokerSettings(), hours)
    assert (settings.log_retention_ms, settings.log_roll_ms) == (7200000, 10800000)
    assert with_properties(BrokerSettings(), {**hours, "log.retention.minutes": "1"}).log_retention_ms == 60000
    assert with_properties(BrokerSettings(), {**hours, "log.retention.ms": "5"}).log_retention_ms == 5
    assert with_properties(BrokerSettings(), {"log.retention.hours": "-1"}).log_retention_ms == -1


def test_listeners_and_directories_are_parsed() -> None:
    settings = with_properties(
        BrokerSettings(), {"listeners": "PLAINTEXT://0.0.0.0:77", "log.dirs": "/a, /b", "broker.rack": "r"}
    )
    assert (settings.host, settings.port, settings.directories, settings.rack) == ("0.0.0.0", 77, ("/a", "/b"), "r")
    with pytest.raises(ConfigError, match="write NAME://HOST:PORT"):
        with_properties(BrokerSettings(), {"listeners": "0.0.0.0:77"})


@pytest.mark.parametrize(
    "properties",
    [
        {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
        {"remote.storage.enable": "true"},
        {"cleanup.policy": "delete,keep"},
        {"compression.gzip.level": "0"},
        {"segment.bytes": "13"},
        {"segment.bytes": str(2**31)},
        {"min.cleanable.dirty.ratio": "1.1"},
        {"preallocate": "maybe"},
        {"leader.replication.throttled.replicas": "0:1,nonsense"},
    ],
)
def test_invalid_topic_config_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as caught:
        topic_config(BrokerSettings(), properties)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_deprecated_timestamp_bound_applies_unless_a_new_one_is_set() -> None:
    config = topic_config(
        BrokerSettings(), {"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "9"}
    )
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (7, 9)


def test_default_of_the_kafka_version_applies_unless_the_property_is_set() -> None:
    assert with_profile_defaults(BrokerSettings()) == BrokerSettings()
    plain = with_profile_defaults(BrokerSettings(kafka_version="4.1"))
    assert plain.log_message_timestamp_after_max_ms == 3_600_000
    given = BrokerSettings(kafka_version="4.1", given={LATEST: "9223372036854775807"})
    assert with_profile_defaults(given).log_message_timestamp_after_max_ms == 9223372036854775807
    (row,) = [row for row in broker_entries(DynamicConfig(plain)) if row.name == LATEST]
    assert (row.value, row.source) == ("3600000", 5), "a default, and not something that was set"


def test_topic_configs_that_kafka_4_refuses_are_refused_by_its_profile() -> None:
    for properties in ({"message.format.version": "3.0"}, {"segment.bytes": "1048575"}):
        with pytest.raises(KafkaError) as refused:
            check_topic_properties("4.0", properties)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        check_topic_properties("3.9", properties)
    check_topic_properties("4.0", {"segment.bytes": "1048576", "retention.ms": "5"})


def test_group_config_that_is_not_set_defaults_to_the_brokers() -> None:
    assert group_value(SETTINGS, {}, "share.record.lock.duration.ms") == 20_000
    assert group_value(SETTINGS, {"share.record.lock.duration.ms": "15000"}, "share.record.lock.duration.ms") == 15_000
    defaults = {name: group_default(SETTINGS, key) for name, key in config_def(Scope.GROUP).keys_by_name().items()}
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
def test_invalid_group_config_is_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        check_group_config(SETTINGS, {name: text})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_valid_group_config_is_accepted() -> None:
    check_group_config(
        SETTINGS, {"share.auto.offset.reset": "by_duration:PT1H", "consumer.session.timeout.ms": "60000"}
    )
    short = BrokerSettings(group_consumer_min_session_timeout_ms=1000, group_consumer_min_heartbeat_interval_ms=100)
    check_group_config(short, {"consumer.session.timeout.ms": "1000", "consumer.heartbeat.interval.ms": "999"})
    with pytest.raises(KafkaError, match="less than"):
        check_group_config(short, {"consumer.session.timeout.ms": "1000", "consumer.heartbeat.interval.ms": "1000"})


def test_every_bound_of_group_configs_is_enforced() -> None:
    bounds = [
        key
        for name, key in config_def(Scope.BROKER).keys_by_name().items()
        if re.match(r"group\.\w+\.(min|max)\.", name)
    ]
    assert len(bounds) >= 15
    assert [key.name for key in bounds if key.without_effect and key.name != "group.share.max.groups"] == []


@pytest.mark.parametrize("text", ["soon", "0"])
def test_a_bound_of_streams_groups_is_checked_at_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match="must be"):
        with_properties(BrokerSettings(kafka_version="4.1"), {"group.streams.max.session.timeout.ms": text})


def test_static_bound_applies_to_group_configs() -> None:
    settings = with_properties(BrokerSettings(), {"group.share.max.session.timeout.ms": "50000"})
    with pytest.raises(KafkaError, match=r"at most .*=50000"):
        check_group_config(settings, {"share.session.timeout.ms": "50001"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("P1DT2H3M4.5S", ((24 + 2) * 60 + 3) * 60_000 + 4_500), ("PT0.001S", 1), ("p2d", 172_800_000)],
)
def test_duration_is_converted_to_ms(text: str, expected: int) -> None:
    assert duration_ms(f"by_duration:{text}") == expected


@pytest.mark.parametrize("text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1H", "PT1H"])
def test_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        duration_ms(text)
