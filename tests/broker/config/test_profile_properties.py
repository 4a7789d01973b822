"""Properties as each version of Kafka has them: described, refused, and in force where nothing was set."""

from __future__ import annotations

import pytest

from anabranch.broker.administration.config_entries import broker_entries, topic_entries
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.dynamic_config import DynamicConfig
from anabranch.broker.config.profile_properties import (
    OURS,
    broker_properties_of,
    check_topic_properties,
    topic_properties_of,
    with_defaults_of_persona,
)
from anabranch.broker.profiles.profile import VERSIONS
from anabranch.protocol.errors import ErrorCode, KafkaError

COUNTS = {"4.0": (289, 33), "4.1": (316, 33), "4.2": (320, 33)}
"""How many properties Kafka 4.0.0, 4.1.1 and 4.2.0 described, of a broker and of a topic."""
LATEST = "log.message.timestamp.after.max.ms"


@pytest.mark.parametrize("version", COUNTS)
def test_as_many_are_described_as_kafka_describes(version: str) -> None:
    brokers = DynamicConfig(with_defaults_of_persona(BrokerSettings(kafka_version=version)))
    for rows, count in zip((broker_entries(brokers), topic_entries(brokers, {})), COUNTS[version], strict=True):
        names = [row.name for row in rows if not row.name.startswith(OURS)]
        assert len(names) == len(set(names)) == count
    assert not any(row.name.startswith("zookeeper.") for row in broker_entries(brokers))


def test_kafka_3_9_and_older_have_what_they_had() -> None:
    for version in ("2.8", "3.5", "3.9"):
        assert "zookeeper.connect" in broker_properties_of(version)
        assert "message.format.version" in topic_properties_of(version)
        check_topic_properties(version, {"message.format.version": "2.0", "segment.bytes": "14"})


def test_a_default_of_the_version_is_in_force_unless_something_was_set() -> None:
    assert with_defaults_of_persona(BrokerSettings()) == BrokerSettings()
    plain = with_defaults_of_persona(BrokerSettings(kafka_version="4.1"))
    assert plain.log_message_timestamp_after_max_ms == 3_600_000
    given = BrokerSettings(kafka_version="4.1", given={LATEST: "9223372036854775807"})
    assert with_defaults_of_persona(given).log_message_timestamp_after_max_ms == 9223372036854775807
    (row,) = [row for row in broker_entries(DynamicConfig(plain)) if row.name == LATEST]
    assert (row.value, row.source) == ("3600000", 5), "a default, and not something that was set"


def test_topics_are_not_set_to_what_a_kafka_4_refuses() -> None:
    for properties in ({"message.format.version": "3.0"}, {"segment.bytes": "1048575"}):
        with pytest.raises(KafkaError) as refused:
            check_topic_properties("4.0", properties)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
    check_topic_properties("4.0", {"segment.bytes": "1048576", "retention.ms": "5"})


@pytest.mark.parametrize("version", VERSIONS)
def test_every_property_has_a_default_that_it_may_have(version: str) -> None:
    for key in (*broker_properties_of(version).values(), *topic_properties_of(version).values()):
        if key.default:
            key.parse(key.default)
