"""A path leads to a field that can have the value, or is refused with a suggestion."""

from __future__ import annotations

import re

import pytest

from anabranch.faults.paths import check, parse
from anabranch.faults.rewriting import EACH
from anabranch.faults.rule_json import InvalidRule
from anabranch.protocol.apis.metadata import MetadataResponse
from anabranch.protocol.registry import BY_NAME


def test_path_is_parsed_into_its_steps() -> None:
    steps = (("topics", EACH), ("partitions", 0), ("leader_id", None))
    assert parse("topics[*].partitions[0].leader_id") == steps
    with pytest.raises(InvalidRule, match="a path is written as"):
        parse("topics[x]")


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("topics[*].partitions[*].leader_id", 7, ""),
        ("topics[*].partitions[*].isr_nodes[0]", 7, ""),
        ("cluster_id", None, ""),
        ("topics[*].is_internal", True, ""),
        ("topic[*].name", "x", "MetadataResponse v9 has no topic; did you mean topics?"),
        ("topics[*].topic_id", 1, "MetadataResponseTopic v9 has no topic_id"),
        ("topics.name", "x", r"topics of MetadataResponse is a list; write topics\[\*\]"),
        ("cluster_id[0]", "x", "cluster_id of MetadataResponse is not a list; leave out"),
        ("cluster_id.name", "x", "cluster_id of MetadataResponse has no fields"),
        ("topics[*].partitions[*]", 1, "partitions of MetadataResponseTopic is not one value"),
        ("controller_id", "1", "controller_id is a whole number, not '1'"),
        ("controller_id", True, "controller_id is a whole number"),
        ("controller_id", 1 << 31, "controller_id is -2147483648 to 2147483647"),
        ("controller_id", None, "controller_id cannot be null"),
        ("cluster_id", 5, "cluster_id is a string, not 5"),
        ("topics[*].is_internal", 1, "is_internal is true or false"),
    ],
)
def test_field_must_exist_and_match_its_type(path: str, value: object, reason: str) -> None:
    found = check(MetadataResponse, 9, path, value)
    assert re.search(reason, found) if reason else not found, found


def test_element_of_a_list_that_may_be_null_is_not_null_itself() -> None:
    response = BY_NAME["DescribeTopicPartitions"].response
    assert check(response, 0, "topics[*].partitions[*].last_known_elr[*]", None) == "last_known_elr cannot be null"
    assert not check(response, 0, "topics[*].partitions[*].last_known_elr[*]", 1)
