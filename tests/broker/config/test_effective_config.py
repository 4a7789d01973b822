"""Settings from text: typed, inherited, and with errors that say what to write instead."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError, TopicConfig, own_default, property_name
from anabranch.broker.config.effective_config import topic_config, with_properties
from anabranch.broker.config.topic_properties import topic_properties
from anabranch.protocol.errors import ErrorCode, KafkaError


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
def test_wrong_properties_are_named(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_properties(BrokerSettings(), properties)
    assert message in str(caught.value)


def test_a_topic_inherits_from_its_broker() -> None:
    settings = with_properties(BrokerSettings(), {"min.insync.replicas": "2", "log.retention.ms": "1000"})
    config = topic_config(settings, {"retention.ms": "-1", "reshard.legacy.producers": "allow"})
    assert (config.min_insync_replicas, config.retention_ms) == (2, -1)
    assert (config.reshard_legacy_producers, config.enable_ordered_delivery) == ("allow", True)


def test_a_topic_refuses_what_it_does_not_know_but_takes_kafkas_inert_properties() -> None:
    topic_config(BrokerSettings(), {"min.compaction.lag.ms": "5"})
    with pytest.raises(KafkaError) as caught:
        topic_config(BrokerSettings(), {"retention": "5"})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_every_default_of_a_topic_equals_the_brokers() -> None:
    """The two tables of defaults cannot drift apart."""
    assert topic_config(BrokerSettings(), {}) == TopicConfig()
    names = {property_name(field.name) for field in dataclasses.fields(TopicConfig)}
    assert names < topic_properties().keys()
    for key in topic_properties().values():
        if key.synonym and key.name in names:
            assert key.default == own_default(BrokerSettings, key.synonym), key.name


def test_properties_of_kafka_without_effect_are_taken_and_checked() -> None:
    assert with_properties(BrokerSettings(), {"num.io.threads": "3"}).given == {"num.io.threads": "3"}
    with pytest.raises(ConfigError, match=r"num\.io\.threads=0 must be at least 1"):
        with_properties(BrokerSettings(), {"num.io.threads": "0"})


def test_hours_and_minutes_count_where_nothing_finer_is_said() -> None:
    hours = {"log.retention.hours": "2", "log.roll.hours": "3"}
    settings = with_properties(BrokerSettings(), hours)
    assert (settings.log_retention_ms, settings.log_roll_ms) == (7200000, 10800000)
    assert with_properties(BrokerSettings(), {**hours, "log.retention.minutes": "1"}).log_retention_ms == 60000
    assert with_properties(BrokerSettings(), {**hours, "log.retention.ms": "5"}).log_retention_ms == 5
    assert with_properties(BrokerSettings(), {"log.retention.hours": "-1"}).log_retention_ms == -1


def test_listeners_and_directories_are_taken_apart() -> None:
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
def test_values_that_a_topic_refuses(properties: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as caught:
        topic_config(BrokerSettings(), properties)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_the_deprecated_bound_of_timestamps_counts_where_the_new_ones_say_nothing() -> None:
    config = topic_config(
        BrokerSettings(), {"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "9"}
    )
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (7, 9)
