"""Which members count as stock consumers of a topic."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_state import GroupLimits
from anabranch.broker.coordinators.gates.stock_members import stock_members_reading
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.coordinators.consumer_groups.world import GroupDriver, Topics

ONE = ["client/1.2.3.4"]


def driver(*names: str, **subscription: object) -> GroupDriver:
    topics = Topics()
    for name in names:
        topics.make(name, 2)
    made = GroupDriver(topics=topics)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, topic_partitions=[], **subscription
    )
    made.send(request)
    return made


def readers(of: GroupDriver, topic: str) -> list[str]:
    return stock_members_reading(of.group, topic, of.topics)


@pytest.mark.parametrize(("holds_gates", "found"), [(False, ONE), (True, [])])
def test_members_count_unless_they_hold_gates(holds_gates: bool, found: list[str]) -> None:
    one = driver("orders", "payments", subscribed_topic_names=["orders"], holds_gates=holds_gates)
    assert readers(one, "orders") == found
    assert readers(one, "payments") == []


def test_a_member_that_has_given_up_a_topic_counts_until_it_has_let_go_of_it() -> None:
    one = driver("orders", "payments", subscribed_topic_names=["orders"])
    one.send(
        ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=1, subscribed_topic_names=["payments"], topic_partitions=None
        )
    )
    assert readers(one, "payments") == ONE
    assert readers(one, "orders") == ONE, "it may still have records of it"


def test_an_expression_counts_as_what_it_matches_until_somebody_has_looked() -> None:
    one = driver("orders", subscribed_topic_names=[], subscribed_topic_regex="orders.*")
    assert readers(one, "orders") == ONE
    assert readers(one, "orders-2") == readers(one, "my-orders") == []
    one.topics.make("orders-2", 2)
    assert readers(one, "orders-2") == ONE, "it was made after the expression was resolved"
    assert readers(one, "my-orders") == []


def test_a_member_that_may_not_describe_what_it_matches_stands_against_nothing() -> None:
    one = driver("orders", subscribed_topic_names=[], subscribed_topic_regex="orders.*")
    (member,) = one.group.members.values()
    one.group.members["m"] = replace(member, assigned={})
    for expression, resolved in one.group.regexes.items():
        one.group.regexes[expression] = replace(resolved, topics=frozenset())
    assert readers(one, "orders") == []


@pytest.mark.parametrize("group", [ShareGroup("g"), ClassicGroup("g", GroupLimits(), random.Random(0))])
def test_who_is_promised_no_order_and_who_is_nobody_count_for_nothing(group: ClassicGroup | ShareGroup) -> None:
    assert stock_members_reading(group, "orders", Topics()) == []
