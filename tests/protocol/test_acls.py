"""Words of access control lists: Kafka's numbers, and its names in znodes."""

from __future__ import annotations

import pytest

from anabranch.protocol.acls import Operation, Permission, ResourceType, from_camel, to_camel


def test_names_in_znodes_are_kafkas() -> None:
    assert [to_camel(kind) for kind in ResourceType] == [
        *("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"),
    ]
    assert to_camel(Operation.DESCRIBE_CONFIGS) == "DescribeConfigs"
    assert to_camel(Permission.ALLOW) == "Allow"


@pytest.mark.parametrize("word", [*ResourceType, *Operation, *Permission])
def test_a_name_leads_back_in_any_case(word: ResourceType | Operation | Permission) -> None:
    assert from_camel(type(word), to_camel(word)) is word
    assert from_camel(type(word), to_camel(word).upper()) is word


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'Fly' is no Operation"):
        from_camel(Operation, "Fly")
