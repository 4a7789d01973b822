"""Matches of regular expressions, their cost, and invalid ones."""

from __future__ import annotations

import time

import pytest

from anabranch.broker.coordinators.consumer_groups.regular_expressions import check, resolve
from anabranch.protocol.errors import ErrorCode, KafkaError

NAMES = ["orders", "orders-eu", "payments", "my.orders"]


def matched(expression: str, names: list[str] = NAMES) -> set[str]:
    return set(resolve([expression], names, lambda name: True, version=1, now_ms=2)[expression].topics)


def test_expression_must_match_the_full_topic_name() -> None:
    assert matched("orders") == {"orders"} and matched("orders.*") == {"orders", "orders-eu"}
    assert matched("^.*orders$") == {"orders", "my.orders"} and matched("my.orders|pay.*") == {"my.orders", "payments"}


def test_topics_that_the_member_may_not_describe_are_excluded() -> None:
    found = resolve(["o.*", "p.*"], NAMES, lambda name: name != "orders", version=7, now_ms=8)
    assert found["o.*"].topics == {"orders-eu"} and found["p.*"].topics == {"payments"}
    assert (found["o.*"].version, found["o.*"].timestamp_ms) == (7, 8)


@pytest.mark.parametrize("expression", ["(", "[a", "a{2,1}", "(?=look)", "\\1", "(a{100}){100}{100}"])
def test_invalid_expression_is_refused(expression: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check(expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION and expression in refused.value.message
    assert matched(expression) == set()


def test_backtracking_expression_is_matched_in_bounded_time() -> None:
    names = ["a" * 249 + "b" for _ in range(1000)]
    before = time.process_time()
    assert matched("(a*)*c|(a|aa)+d|([a-b]+)*e", names) == set()
    assert time.process_time() - before < 1
