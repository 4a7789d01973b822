"""Which members count as stock consumers of a topic."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from anabranch.broker.coordinators.classic_groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_state import GroupLimits
from anabranch.broker.coordinators.gates.stock_members import stock_members_reading
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from tests.broker.coordinators.classic_groups.test_members import member
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
def test_only_members_without_gate_support_are_stock_members(holds_gates: bool, found: list[str]) -> None:
    one = driver("orders", "payments", subscribed_topic_names=["orders"], holds_gates=holds_gates)
    assert readers(one, "orders") == found
    assert readers(one, "payments") == []


def test_unsubscribed_member_is_a_reader_until_its_partitions_are_revoked() -> None:
    one = driver("orders", "payments", subscribed_topic_names=["orders"])
    one.send(
        ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=1, subscribed_topic_names=["payments"], topic_partitions=None
        )
    )
    assert readers(one, "payments") == ONE
    assert readers(one, "orders") == ONE, "it may still have records of it"


def test_unresolved_expression_counts_for_every_matching_topic() -> None:
    one = driver("orders", subscribed_topic_names=[], subscribed_topic_regex="orders.*")
    assert readers(one, "orders") == ONE
    assert readers(one, "orders-2") == readers(one, "my-orders") == []
    one.topics.make("orders-2", 2)
    assert readers(one, "orders-2") == ONE, "it was made after the expression was resolved"
    assert readers(one, "my-orders") == []


def test_member_without_describe_permission_is_no_reader() -> None:
    one = driver("orders", subscribed_topic_names=[], subscribed_topic_regex="orders.*")
    one.group.members["m"] = replace(one.group.members["m"], assigned={})
    for expression, resolved in one.group.regexes.items():
        one.group.regexes[expression] = replace(resolved, topics=frozenset())
    assert readers(one, "orders") == []


def test_classic_stock_members_are_those_without_gate_support_that_read_the_topic() -> None:
    group = ClassicGroup("g", GroupLimits(), random.Random(0))
    for name, topic, holds_gates in (
        ("ann", "orders", False),
        ("bob", "orders", True),
        ("cyd", "payments", False),
        ("dan", "payments", True),
    ):
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[topic], user_data=None))
        one = replace(member(name), client_id=name, protocols=(("range", subscription),), holds_gates=holds_gates)
        group.add_member(one, CONSUMER_PROTOCOL_TYPE)
    assert stock_members_reading(group, "orders", Topics()) == ["ann/h"]
    assert stock_members_reading(group, "payments", Topics()) == ["cyd/h"]


@pytest.mark.parametrize("group", [ShareGroup("g"), ClassicGroup("g", GroupLimits(), random.Random(0))])
def test_share_groups_and_empty_groups_have_no_stock_members(group: ClassicGroup | ShareGroup) -> None:
    assert stock_members_reading(group, "orders", Topics()) == []
