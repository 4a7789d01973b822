"""A rule that cannot work in a proxy is refused with an alternative."""

from __future__ import annotations

import pytest

from anabranch.faults.rule import Rule
from anabranch.faults.rule_json import InvalidRule
from anabranch.proxy.unsupported_rules import refuse_unsupported


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Rule(node="kill"), "cannot kill a broker of another cluster; .* disconnect=before"),
        (
            Rule(between_brokers=True, hold=True),
            "requests between brokers do not pass the proxy",
        ),
        (Rule(principal="User:alice", hold=True), "name its client_id"),
        (Rule(elect="preferred"), "NOT_LEADER_OR_FOLLOWER"),
        (Rule(stale_metadata=True), "a proxy cannot change the metadata of brokers; edit responses of Metadata"),
        (Rule(disk="full"), "KAFKA_STORAGE_ERROR"),
        (Rule(step=("elect",), hold=True), "name an api"),
        (Rule(link=("1:2",), disconnect="before"), "name brokers"),
    ],
)
def test_rule_that_needs_our_cluster_is_refused(rule: Rule, says: str) -> None:
    with pytest.raises(InvalidRule, match=says):
        refuse_unsupported(rule)


def test_other_rules_are_accepted() -> None:
    refuse_unsupported(Rule(api=("Fetch",), disconnect="before"))
