"""The fields of a node's settings: Kafka's names and Kafka's defaults."""

from __future__ import annotations

import pytest

from anabranch.broker.config.broker_properties import broker_properties
from anabranch.broker.config.broker_settings import (
    BrokerSettings,
    ConfigError,
    own_default,
    parse_properties,
    property_name,
)


def test_pairs() -> None:
    assert parse_properties(("a=1", "b = x=y ")) == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigError, match="write NAME=VALUE"):
        parse_properties(("num.partitions",))


def test_every_field_with_a_name_of_kafkas_has_the_default_that_the_table_tells() -> None:
    """A row that gives a default of its own beside a field's would be a second truth."""
    for name, key in broker_properties().items():
        own = own_default(BrokerSettings, name)
        if own is not None and name not in ("log.retention.ms", "log.roll.ms"):
            assert key.default == own, f"{name}: the table says {key.default}, the field {own}"
        assert key.default != "=", f"{name}: no field tells a default"


def test_the_node_id_is_kafkas_broker_id() -> None:
    assert property_name("node_id") == "broker.id"
    assert property_name("log_segment_bytes") == "log.segment.bytes"
