"""A blocking test adds, awaits and removes rules in another process, and gets rules without hits."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from anabranch.control.client import ControlClient, ControlError
from anabranch.faults.active_rule import RuleNeverHit
from anabranch.faults.rule import Rule
from anabranch.faults.rule_json import InvalidRule
from tests.anabranch.control.test_client import control  # noqa: F401


@pytest.fixture
def ours(control: ControlClient) -> Iterator[ControlClient]:  # noqa: F811
    yield control
    control.faults.clear()


def produce(to: ControlClient, topic: str) -> list[object]:
    addresses = ",".join(f"{one['host']}:{one['port']}" for one in to.state()["nodes"])
    producer = Producer({"bootstrap.servers": addresses, "retry.backoff.ms": 10})
    sent: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: sent.append(error))
    assert producer.flush(60) == 0
    return sent


def test_rule_applies_within_its_block(ours: ControlClient) -> None:
    ours.create_topic("block", 1)
    with ours.faults(api="Produce", topic="block", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
        assert produce(ours, "block") == [None]
        rule.wait_hit(2)
        assert rule.hits == 2 and rule.row()["spent"]
    assert ours.faults.rows() == []
    assert rule.hits == 2 and rule.row()["spent"]


def test_rule_without_hits_fails_its_block(ours: ControlClient) -> None:
    never = Rule(name="never", api=("DeleteTopics",), hold=True)
    with pytest.raises(RuleNeverHit, match="rule never has no hits: no request matched it"), ours.faults(never):
        pass
    with ours.faults(api="DeleteTopics", hold=True, optional=True):
        pass
    with pytest.raises(ZeroDivisionError), ours.faults(api="DeleteTopics", hold=True):
        raise ZeroDivisionError
    with ours.faults(api="DeleteTopics", hold=True) as rule:
        rule.remove()


def test_rule_that_a_reset_has_removed_before_a_hit_fails_its_block(ours: ControlClient) -> None:
    with (
        pytest.raises(RuleNeverHit, match="rule never has no hits: no request matched it"),
        ours.faults(name="never", api="DeleteTopics", hold=True),
    ):
        ours.reset()
    with ours.faults(name="never", api="Produce", topic="reset", error="NOT_LEADER_OR_FOLLOWER", times=1):
        ours.create_topic("reset", 1)
        assert produce(ours, "reset") == [None]
        ours.reset()


def test_held_request_is_released(ours: ControlClient) -> None:
    rule = ours.faults.add(name="a/b c", api="DeleteTopics", hold=True)
    ours.create_topic("held", 1)
    deleting = threading.Thread(target=ours.ask, args=("DELETE", "/v1/topics/held"))
    deleting.start()
    rule.wait_hit()
    assert rule.held == 1 and deleting.is_alive()
    rule.release()
    deleting.join(60)
    assert not deleting.is_alive()


def test_impossible_rule_is_refused(ours: ControlClient) -> None:
    with pytest.raises(ControlError, match="there is no broker 9; there are 1, 2, 3") as refused:
        ours.faults.add(api="Produce", hold=True, brokers=9)
    assert refused.value.status == 400
    with pytest.raises(InvalidRule, match="a Rule has all of its fields: set times there"):
        ours.faults.add(Rule(hold=True), times=2)
    with pytest.raises(ControlError, match="after 0 s rule slow matched no request") as gave_up:
        ours.faults.add(name="slow", api="DeleteTopics", hold=True).wait_hit(timeout_s=0)
    assert gave_up.value.status == 408
