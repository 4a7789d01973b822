"""DescribeConfigs of brokers, topics and groups, by version of Kafka."""

from __future__ import annotations

import pytest

from anabranch.broker.administration.config_entries import (
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT_BROKER,
    DYNAMIC_TOPIC,
    STATIC_BROKER,
    ConfigSynonym,
    broker_entries,
    group_entries,
    topic_entries,
)
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.dynamic_config import DynamicConfig
from anabranch.broker.config.effective_config import with_profile_defaults, with_properties

COUNTS = {"4.0": (289, 33), "4.1": (316, 33), "4.2": (320, 33)}
"""How many properties Kafka 4.0.0, 4.1.1 and 4.2.0 described, of a broker and of a topic."""
OURS = ("reshard.", "enable.ordered.delivery", "queued.max.response.bytes", "message.max.decompressed.")
"""What the names of our own properties begin with: every version has them."""


@pytest.mark.parametrize("version", COUNTS)
def test_number_of_described_configs_equals_kafkas(version: str) -> None:
    brokers = DynamicConfig(with_profile_defaults(BrokerSettings(kafka_version=version)))
    for rows, count in zip((broker_entries(brokers), topic_entries(brokers, {})), COUNTS[version], strict=True):
        names = [row.name for row in rows if not row.name.startswith(OURS)]
        assert len(names) == len(set(names)) == count
    assert not any(row.name.startswith("zookeeper.") for row in broker_entries(brokers))


def test_static_property_of_another_kafka_version_is_not_described() -> None:
    settings = with_properties(BrokerSettings(kafka_version="4.1"), {"group.streams.max.size": "7"})
    (row,) = [row for row in broker_entries(DynamicConfig(settings)) if row.name == "group.streams.max.size"]
    assert (row.value, row.source) == ("7", 4)
    settings = with_properties(BrokerSettings(), {"group.streams.max.size": "7"})
    assert not [row for row in broker_entries(DynamicConfig(settings)) if row.name == "group.streams.max.size"]


def test_config_synonyms_are_listed_by_precedence() -> None:
    dynamic = DynamicConfig(with_properties(BrokerSettings(), {"log.retention.hours": "1"}))
    dynamic.update(default={"log.retention.ms": "3"}, own={"log.retention.ms": "4"})
    (row,) = [row for row in topic_entries(dynamic, {"retention.ms": "5"}) if row.name == "retention.ms"]
    assert (row.value, row.source) == ("5", DYNAMIC_TOPIC)
    assert row.synonyms == (
        ConfigSynonym("retention.ms", "5", DYNAMIC_TOPIC),
        ConfigSynonym("log.retention.ms", "4", DYNAMIC_BROKER),
        ConfigSynonym("log.retention.ms", "3", DYNAMIC_DEFAULT_BROKER),
        ConfigSynonym("log.retention.hours", "1", STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "168", DEFAULT),
    )


def test_retention_hours_set_statically_leave_retention_ms_at_its_default() -> None:
    dynamic = DynamicConfig(with_properties(BrokerSettings(), {"log.retention.hours": "1"}))
    rows = {row.name: row for row in (*broker_entries(dynamic), *topic_entries(dynamic, {}))}
    hours, ms, topic = (rows[name] for name in ("log.retention.hours", "log.retention.ms", "retention.ms"))
    assert (hours.value, hours.source) == ("1", STATIC_BROKER)
    assert (ms.value, ms.source, ms.synonyms) == (None, DEFAULT, ())
    assert (topic.value, topic.source, topic.synonyms) == ("3600000", DEFAULT, ())


def test_value_of_password_config_is_not_described() -> None:
    dynamic = DynamicConfig(with_properties(BrokerSettings(), {"ssl.key.password": "planted"}))
    rows = broker_entries(dynamic)
    (row,) = [row for row in rows if row.name == "ssl.key.password"]
    assert (row.sensitive, row.value, row.source) == (True, None, STATIC_BROKER)
    assert "planted" not in str(rows)


def test_group_configs_of_a_later_kafka_version_are_not_described() -> None:
    def streams(version: str) -> list[str]:
        rows = group_entries(BrokerSettings(kafka_version=version), {})
        assert {row.name for row in rows} >= {"consumer.session.timeout.ms", "share.isolation.level"}
        return [row.name for row in rows if row.name.startswith("streams.")]

    later = "streams.initial.rebalance.delay.ms"
    assert (later in streams("4.2"), later in streams("4.1")) == (True, False)
    assert len(streams("4.2")) == len(streams("4.1")) + 1 == 4
