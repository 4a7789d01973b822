"""The layers of a broker's configuration, and the accepted values of ZooKeeper."""

from __future__ import annotations

import logging

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.dynamic_config import DynamicConfig, static_text, valid_properties


def test_broker_config_overrides_the_cluster_default_which_overrides_the_static_one() -> None:
    dynamic = DynamicConfig(BrokerSettings(message_max_bytes=1, log_retention_bytes=1))
    assert dynamic.update(default={"message.max.bytes": "2", "log.retention.bytes": "2"})
    assert dynamic.update(own={"message.max.bytes": "3"})
    assert (dynamic.current.message_max_bytes, dynamic.current.log_retention_bytes) == (3, 2)
    assert not dynamic.update(own={"message.max.bytes": "3"})
    assert dynamic.update(default={}, own={})
    assert dynamic.current == dynamic.static


@pytest.mark.parametrize(
    ("version", "name", "text", "kept"),
    [
        ("3.9", "num.partitions", "2", False),
        ("3.9", "message.max.bytes", "many", False),
        ("3.9", "advertised.listeners", "PLAINTEXT://a:1", True),
        ("4.0", "advertised.listeners", "PLAINTEXT://a:1", False),
        ("3.9", "remote.log.reader.threads", "2", False),
        ("4.0", "remote.log.reader.threads", "2", True),
        ("4.0", "share.coordinator.threads", "2", False),
        ("3.9", "share.coordinator.threads", "2", True),
        ("3.9", "nobody.knows.it", "x", True),
    ],
)
def test_property_that_is_not_dynamic_is_skipped_and_logged(
    version: str, name: str, text: str, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        found = valid_properties({name: text}, version, per_broker=True)
    assert found == ({name: text} if kept else {})
    assert [name in message for message in caplog.messages] == ([] if kept else [True])


def test_dynamic_properties_that_contradict_each_other_are_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Other brokers check a cluster-wide default only with their own properties."""
    dynamic = DynamicConfig(BrokerSettings())
    dynamic.update(own={"log.cleaner.min.compaction.lag.ms": "2000"})
    assert not dynamic.update(default={"log.cleaner.max.compaction.lag.ms": "1000"})
    assert dynamic.current.log_cleaner_min_compaction_lag_ms == 2000
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert dynamic.update(own={"max.connections.per.ip.overrides": "10.0.0.1"}, default={})
    assert dynamic.current == dynamic.static


def test_value_equal_to_the_versions_default_is_not_a_static_one() -> None:
    assert static_text(BrokerSettings(), "num.partitions") is None
    assert static_text(BrokerSettings(num_partitions=2), "num.partitions") == "2"
    name = "log.message.timestamp.after.max.ms"
    changed = 3_600_000
    assert static_text(BrokerSettings(log_message_timestamp_after_max_ms=changed), name) == "3600000"
    assert static_text(BrokerSettings(log_message_timestamp_after_max_ms=changed, kafka_version="4.0"), name) is None
