"""Settings: Kafka's names and defaults, and errors that say what to write instead."""

from __future__ import annotations

import dataclasses

import pytest

from broker.config import (
    TOPIC_DEFAULTS,
    BrokerSettings,
    ConfigError,
    TopicConfig,
    parse_properties,
    property_name,
    topic_config,
    with_properties,
)
from protocol.errors import ErrorCode, KafkaError


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
        ({"log.cleanup.policy": "keep"}, "log.cleanup.policy='keep' must be one of delete, compact"),
    ],
)
def test_wrong_properties_are_named(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_properties(BrokerSettings(), properties)
    assert message in str(caught.value)


def test_pairs() -> None:
    assert parse_properties(("a=1", "b = x=y ")) == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigError, match="write NAME=VALUE"):
        parse_properties(("num.partitions",))


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
    assert set(TOPIC_DEFAULTS) < {field.name for field in dataclasses.fields(TopicConfig)}


def test_the_node_id_is_kafkas_broker_id() -> None:
    assert property_name("node_id") == "broker.id"
    assert property_name("log_segment_bytes") == "log.segment.bytes"
