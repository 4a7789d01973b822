"""Filters have Kafka's meaning, and names those of Kafka's znodes."""

from __future__ import annotations

import pytest

from anabranch.protocol.acls import (
    ANY,
    MATCH,
    SUPPORTED,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    from_camel,
    to_camel,
)

TOPIC = ResourceType.TOPIC
PATTERNS = {
    "orders": ResourcePattern(TOPIC, "orders"),
    "ord*": ResourcePattern(TOPIC, "ord", PatternType.PREFIXED),
    "*": ResourcePattern(TOPIC, "*"),
    "*-prefix": ResourcePattern(TOPIC, "*", PatternType.PREFIXED),
    "group": ResourcePattern(ResourceType.GROUP, "orders"),
}


@pytest.mark.parametrize(
    ("asked", "covered"),
    [
        (AclFilter(), set(PATTERNS)),
        (AclFilter(resource_type=TOPIC), set(PATTERNS) - {"group"}),
        (AclFilter(resource_type=TOPIC, name="orders", pattern_type=MATCH), {"orders", "ord*", "*"}),
        (AclFilter(resource_type=TOPIC, name="orders", pattern_type=ANY), {"orders"}),
        (AclFilter(resource_type=TOPIC, name="orders", pattern_type=PatternType.LITERAL), {"orders"}),
        (AclFilter(resource_type=TOPIC, name="ord", pattern_type=PatternType.PREFIXED), {"ord*"}),
        (AclFilter(resource_type=TOPIC, name="*", pattern_type=PatternType.LITERAL), {"*"}),
        (AclFilter(name="*", pattern_type=MATCH), {"*", "*-prefix"}),
        (AclFilter(pattern_type=PatternType.PREFIXED), {"ord*", "*-prefix"}),
        (AclFilter(name="ORDERS", pattern_type=MATCH), {"*"}),
    ],
)
def test_filter_covers_matching_patterns(asked: AclFilter, covered: set[str]) -> None:
    assert {name for name, pattern in PATTERNS.items() if asked.covers(pattern)} == covered


@pytest.mark.parametrize(
    ("asked", "picked"),
    [
        (AclFilter(), True),
        (AclFilter(principal="User:a", host="*", operation=Operation.READ, permission=Permission.ALLOW), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=Operation.ALL), False),
        (AclFilter(operation=Operation.DESCRIBE), False),
        (AclFilter(permission=Permission.DENY), False),
    ],
)
def test_filter_picks_matching_entries(asked: AclFilter, picked: bool) -> None:
    assert asked.picks(Acl("User:a", "*", Operation.READ, Permission.ALLOW)) is picked


def test_enum_names_equal_those_of_kafka() -> None:
    assert to_camel(ResourceType.TRANSACTIONAL_ID) == "TransactionalId"
    assert from_camel(Operation, "describeconfigs") is Operation.DESCRIBE_CONFIGS
    with pytest.raises(ValueError, match="'Frobnicate' is not a Operation"):
        from_camel(Operation, "Frobnicate")


def test_every_resource_type_has_operations() -> None:
    assert SUPPORTED.keys() == set(ResourceType)
