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
    settings = BrokerSettings(kafka_version=version)
    try:
        check_broker(settings, settings, {name: text}, per_broker=True)
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
