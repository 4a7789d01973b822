"""A certificate maps to a user as in Kafka's `SslPrincipalMapper`."""

from __future__ import annotations

import pytest

from anabranch.broker.authentication.principals import NoRule, PrincipalRules
from anabranch.broker.config.broker_settings import ConfigError

NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U", "DUKE@SERVICEUSERS"),
        ("RULE:^OU=.*$/$1/, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT", "duke"),
        ("RULE:^CN=.*$/a\\/b/", "a/b"),
        ("RULE:^CN=(?<who>.*?),.*$/$1-$7/", "Duke-$7"),
        ("RULE:CN=(.*?)(?<!x),OU.*/$1/,DEFAULT", "Duke"),
    ],
)
def test_first_rule_that_matches_the_full_name_is_applied(rules: str, user: str) -> None:
    assert PrincipalRules(rules).user(NAME) == user


def test_rule_that_matches_only_part_of_the_name_is_not_applied() -> None:
    with pytest.raises(NoRule, match="matches 'CN=Duke"):
        PrincipalRules("RULE:^CN=(.*?),/$1/").user(NAME)
    with pytest.raises(NoRule):
        PrincipalRules("").user(NAME)


@pytest.mark.parametrize("rules", ["RULE:a/b", "RULE:a/b/X", "default", "RULE:(/x/", "DEFAULT RULE:a/b/"])
def test_malformed_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match="Invalid rule"):
        PrincipalRules(rules)
