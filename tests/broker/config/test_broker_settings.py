"""Fields of broker and topic settings have Kafka's names and the declared defaults."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig, field_name, property_name
from anabranch.broker.config.config_def import Scope, config_def, text_of

OTHER = {
    "broker.id": "a node that is started without an id is the first",
    "group.coordinator.rebalance.protocols": "empty stands for those of the version",
}
"""Properties whose fields begin with something else than the declared default."""


@pytest.mark.parametrize(("scope", "settings"), [(Scope.BROKER, BrokerSettings), (Scope.TOPIC, TopicConfig)])
def test_default_of_every_field_equals_its_propertys(scope: Scope, settings: type) -> None:
    known, defaults = config_def(scope).keys_by_name(), settings()
    for field in dataclasses.fields(settings):
        key = known.get(property_name(field.name))
        if key is not None and key.default is not None and key.name not in OTHER:
            assert text_of(getattr(defaults, field.name)) == key.default, field.name


@pytest.mark.parametrize("settings", [BrokerSettings, TopicConfig])
def test_default_of_every_field_has_its_type(settings: type) -> None:
    types = {"int": int, "str": str, "bool": bool, "float": float, "tuple": tuple}
    defaults = settings()
    for field in dataclasses.fields(settings):
        if expected := types.get(str(field.type).partition("[")[0]):
            assert type(getattr(defaults, field.name)) is expected, field.name


def test_the_node_id_is_kafkas_broker_id() -> None:
    assert property_name("node_id") == "broker.id"
    assert property_name("log_segment_bytes") == "log.segment.bytes"
    assert [field_name(name) for name in ("node.id", "broker.id", "log.dir")] == ["node_id", "node_id", "log_dirs"]
