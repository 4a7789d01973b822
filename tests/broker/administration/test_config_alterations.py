"""Validation of broker configuration changes, by version of Kafka."""

from __future__ import annotations

import pytest

from anabranch.broker.administration.config_alterations import (
    APPEND,
    BROKER,
    Operation,
    apply_operations,
    check_broker,
    keys_of,
)
from anabranch.broker.administration.config_entries import broker_entries
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.dynamic_config import DynamicConfig
from anabranch.broker.profiles.profile import VERSIONS
from anabranch.protocol.errors import ErrorCode, KafkaError


def refusal(version: str, name: str, text: str) -> str | None:
    try:
        check_broker(DynamicConfig(BrokerSettings(kafka_version=version)), {name: text}, per_broker=True)
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_REQUEST
        return str(error)
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_property_that_is_described_as_read_only_cannot_be_changed(version: str) -> None:
    """Other refusals have other reasons, and no changeable property is described as fixed."""
    for row in broker_entries(DynamicConfig(BrokerSettings(kafka_version=version))):
        error = refusal(version, row.name, row.value or "")
        assert row.read_only == (error is not None and "Cannot update these configs dynamically" in error), row.name


def test_property_of_another_kafka_version_is_accepted_as_unknown_property() -> None:
    name = "share.coordinator.threads"
    assert refusal("3.9", name, "x") is None
    assert refusal("4.0", name, "2") is not None


def test_value_is_checked_against_bounds_of_the_kafka_version() -> None:
    name = "remote.log.manager.follower.thread.pool.size"
    assert refusal("4.2", name, "3") is None
    error = refusal("4.2", name, "x")
    assert error is not None and "whole number" in error


def test_append_extends_the_default_of_the_kafka_version() -> None:
    name = "metric.reporters"
    after = {
        version: apply_operations({}, [Operation(name, APPEND, "mine")], keys_of(BROKER, version))[name]
        for version in ("3.9", "4.0")
    }
    assert after == {"3.9": "mine", "4.0": "org.apache.kafka.common.metrics.JmxReporter,mine"}


LEAST, MOST = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"


@pytest.mark.parametrize(
    ("default", "own", "after", "per_broker"),
    [({MOST: "1000"}, {}, {LEAST: "2000"}, True), ({}, {LEAST: "2000"}, {MOST: "1000"}, False)],
)
def test_property_that_contradicts_the_other_level_is_refused(
    default: dict[str, str], own: dict[str, str], after: dict[str, str], per_broker: bool
) -> None:
    dynamic = DynamicConfig(BrokerSettings())
    check_broker(dynamic, after, per_broker=per_broker)
    dynamic.update(default=default, own=own)
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms \(2000\) > max"):
        check_broker(dynamic, after, per_broker=per_broker)


def test_thread_count_is_compared_with_the_current_one() -> None:
    name = "num.io.threads"
    dynamic = DynamicConfig(BrokerSettings(given={name: "2"}))
    for count in ("4", "8", "16"):
        check_broker(dynamic, {name: count}, per_broker=False)
        dynamic.update(default={name: count})
    check_broker(dynamic, {name: "16", "log.retention.ms": "1"}, per_broker=False)
    for after in ({name: "33"}, {name: "7"}, {}):
        with pytest.raises(KafkaError, match="between half and double the current value 16"):
            check_broker(dynamic, after, per_broker=False)
