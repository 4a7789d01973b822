"""A node has the configured authorizer, and refuses settings that would have no effect."""

from __future__ import annotations

import pytest

from anabranch.broker.authorization.authorizer_settings import CLASSES, authorizer_of
from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.node.start_settings import start_settings
from anabranch.protocol.acls import Operation, ResourceType

NAME = "authorizer.class.name"


def test_no_authorizer_is_configured_by_default() -> None:
    assert authorizer_of(BrokerSettings()) is None


@pytest.mark.parametrize("name", CLASSES)
def test_both_authorizer_class_names_of_kafka_are_accepted(name: str) -> None:
    authorizer = authorizer_of(start_settings(BrokerSettings(), {NAME: name, "super.users": "User:a;User:b"}))
    assert authorizer is not None
    allowed = [authorizer.allows(f"User:{user}", "h", Operation.READ, ResourceType.TOPIC, "t") for user in "abc"]
    assert allowed == [True, True, False]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({NAME: "com.example.Mine"}, "no Java class can be loaded here; write kafka.security.authorizer.AclAuthorizer"),
        ({"super.users": "User:a"}, "none is configured: everybody may do everything. Add authorizer.class.name="),
        ({"allow.everyone.if.no.acl.found": "true"}, "need an authorizer, and none is configured"),
        ({NAME: CLASSES[0], "super.users": "alice"}, "'alice' in super.users is not of the form User:alice"),
    ],
)
def test_unsupported_authorizer_settings_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        start_settings(BrokerSettings(), properties)
