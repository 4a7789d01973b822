"""The declaration of properties: its format, and rules for every line."""

from __future__ import annotations

import dataclasses
import re

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig, property_name
from anabranch.broker.config.config_def import ConfigDef, ConfigError, ConfigKey, Kind, Scope, config_def
from anabranch.broker.profiles.profile import VERSIONS


@pytest.mark.parametrize("version", ["2.8", "3.5", "3.9"])
def test_kafka_3_describes_zookeeper_and_message_format_properties(version: str) -> None:
    assert "zookeeper.connect" in config_def(Scope.BROKER).described_keys(version)
    assert "message.format.version" in config_def(Scope.TOPIC).described_keys(version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scope", Scope)
def test_default_of_every_property_is_valid(scope: Scope, version: str) -> None:
    for key in config_def(scope).keys_by_name(version).values():
        if key.default:
            assert key.normal(key.default) == key.default or key.kind is Kind.DOUBLE


@pytest.mark.parametrize("scope", Scope)
def test_each_version_has_one_definition_of_a_property(scope: Scope) -> None:
    for version in VERSIONS:
        names = [key.name for key in config_def(scope)._keys if key.is_in(version)]
        assert len(names) == len(set(names))


def test_every_topic_property_inherits_from_a_broker_property_of_its_type() -> None:
    """Otherwise a topic would inherit an invalid value."""
    brokers = config_def(Scope.BROKER).keys_by_name()
    for key in config_def(Scope.TOPIC).keys_by_name().values():
        assert not key.synonym or brokers[key.synonym].kind is key.kind, key.name


@pytest.mark.parametrize(("scope", "settings"), [(Scope.BROKER, BrokerSettings), (Scope.TOPIC, TopicConfig)])
def test_a_property_with_a_field_has_an_effect(scope: Scope, settings: type) -> None:
    known = config_def(scope).keys_by_name()
    names = {property_name(field.name) for field in dataclasses.fields(settings)} & known.keys()
    assert [name for name in sorted(names) if known[name].without_effect] == []


def test_a_topic_property_without_a_field_has_no_effect() -> None:
    fields = {property_name(field.name) for field in dataclasses.fields(TopicConfig)}
    known = config_def(Scope.TOPIC).keys_by_name()
    assert {name for name, key in known.items() if not key.without_effect} == fields


def test_definition_of_the_version_is_preferred_to_the_first() -> None:
    old = ConfigKey("a", Kind.INT, "1", versions="..3.9")
    new = ConfigKey("a", Kind.INT, "2", versions="4.0..4.1")
    newest = ConfigKey("b", Kind.INT, "3", versions="4.2..")
    hidden = ConfigKey("c", Kind.INT, "4", versions="internal")
    declared = ConfigDef([hidden, newest, old, new])
    assert [declared.described_keys(version) for version in ("3.5", "3.9", "4.0", "4.1")] == [
        {"a": old},
        {"a": old},
        {"a": new},
        {"a": new},
    ]
    assert declared.described_keys("4.2") == {"b": newest}
    assert declared.keys_by_name("4.1") == {"a": new, "b": newest, "c": hidden}
    assert declared.keys_by_name("4.2") == declared.keys_by_name() == {"a": old, "b": newest, "c": hidden}


@pytest.mark.parametrize(
    ("kind", "accepts", "text", "reason"),
    [
        (Kind.BOOLEAN, "", "yes", "must be true or false"),
        (Kind.INT, "", "1.5", "must be a whole number"),
        (Kind.SHORT, "", "32768", "must be between -32768 and 32767"),
        (Kind.INT, "1..", "0", "must be at least 1"),
        (Kind.INT, "-1 or 1..9", "0", "must be -1 or 1..9"),
        (Kind.DOUBLE, "0..1", "1.1", "must be between 0 and 1"),
        (Kind.DOUBLE, "", "half", "must be a number"),
        (Kind.STRING, "a, b", "c", "must be one of a, b"),
        (Kind.LIST, "a, b", "a,c", "must be one of a, b"),
        (Kind.LIST, "PARTITION:BROKER", "0:1,x", "must be one of PARTITION:BROKER"),
    ],
)
def test_invalid_value_is_refused(kind: Kind, accepts: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"^name=.*{reason}"):
        ConfigKey("name", kind, None, accepts).parse(text)


@pytest.mark.parametrize(
    ("kind", "accepts", "text", "expected"),
    [
        (Kind.BOOLEAN, "", " TRUE ", "true"),
        (Kind.INT, "-1 or 1..9", "+9", "9"),
        (Kind.DOUBLE, "", "1", "1.0"),
        (Kind.LIST, "a, b", " a , b ", "a,b"),
        (Kind.LIST, "a, b", "", ""),
        (Kind.LIST, "PARTITION:BROKER", "*", "*"),
        (Kind.LIST, "PARTITION:BROKER", "0:1, 1:2", "0:1,1:2"),
    ],
)
def test_values_are_normalized(kind: Kind, accepts: str, text: str, expected: str) -> None:
    assert ConfigKey("name", kind, None, accepts).normal(text) == expected


@pytest.mark.parametrize("scope", Scope)
def test_documentation_is_understood_without_its_context(scope: Scope) -> None:
    """DescribeConfigs sends it without its context."""
    references = re.compile(r"\b(such|these|those|them|they|the next|the same for|who|see)\b", re.IGNORECASE)
    for key in config_def(scope)._keys:
        if key.documentation:
            assert key.documentation.endswith("."), key.name
            assert not references.search(key.documentation), f"{key.name}: {key.documentation}"
        assert bool(key.documentation) == (not key.without_effect) or scope is Scope.TOPIC, key.name
