"""A test gets new clusters, also several at a time, and nothing remains of them."""

from __future__ import annotations

import re
import unittest
from typing import Any

import pytest
from confluent_kafka import Producer

from anabranch.clients.authentication import AuthenticationFailed
from anabranch.testing.clusters import CannotStart, Clusters
from anabranch.testing.running_cluster import RunningCluster
from tests.secured.certificates import plain_users


def produce(to: RunningCluster) -> int:
    producer = Producer({"bootstrap.servers": to.bootstrap_servers, "retry.backoff.ms": 10})
    sent: list[int] = []
    producer.produce("orders", b"x", partition=0, on_delivery=lambda error, message: sent.append(message.offset()))
    assert producer.flush(60) == 0
    return sent[0]


def test_each_cluster_is_empty() -> None:
    with Clusters() as clusters:
        for _ in range(3):
            with clusters.running() as one:
                assert (produce(one), produce(one)) == (0, 1)
        with (
            clusters.running(brokers=3, properties={"num.partitions": "4"}, journal=10) as large,
            clusters.running() as small,
        ):
            assert large.bootstrap_servers.count(":") == 3 and small.bootstrap_servers.count(":") == 1
            with large.faults(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=1):
                assert produce(large) == 0
            assert large.journal.count(api="Produce", topic="orders") == 2
            assert len(large.control.state()["topics"][0]["partitions"]) == 4
            assert [node.running for node in small.nodes.values()] == [True]


def test_cluster_may_require_authentication() -> None:
    login = "SASL_PLAINTEXT"
    ways = ["PLAINTEXT://127.0.0.1:0", f"{login}://127.0.0.1:0"]
    users = {**plain_users(login, alice="wonder"), "inter.broker.listener.name": "PLAINTEXT"}
    with Clusters() as clusters, clusters.running(listeners=ways, properties=users) as one:
        assert one.listeners["PLAINTEXT"] == one.bootstrap_servers
        alice = {"security_protocol": login, "sasl_plain_username": "alice"}
        one.topic("seen")
        assert one.admin_as(login, **alice, sasl_plain_password="wonder").list_topics() == ["seen"]
        with pytest.raises(AuthenticationFailed):
            one.admin_as(login, **alice, sasl_plain_password="wrong").list_topics()


def test_failed_start_is_reported_and_next_start_succeeds() -> None:
    with Clusters() as clusters:
        with pytest.raises(CannotStart, match=r"num\.partition\b"), clusters.running(properties={"num.partition": "4"}):
            pass
        with clusters.running() as one:
            assert produce(one) == 0


def test_interrupted_start_does_not_give_its_cluster_to_the_next_test() -> None:
    """As a timeout of pytest-timeout does, which raises an exception wherever the test is."""

    class Interrupted(Exception):
        pass

    def interrupt() -> str:
        raise Interrupted

    with Clusters() as clusters:
        with clusters.running():
            pass
        assert clusters._process is not None and clusters._process.stdout is not None
        stdout: Any = clusters._process.stdout
        stdout.readline = interrupt
        with pytest.raises(Interrupted), clusters.running():
            pass
        del stdout.readline
        with clusters.running(brokers=2) as two:
            assert two.bootstrap_servers.count(":") == 2


def test_killed_process_is_reported_and_replaced() -> None:
    with Clusters() as clusters:
        with (
            pytest.raises(CannotStart, match="the process of the clusters has ended, killed by SIGKILL"),
            clusters.running(),
        ):
            assert clusters._process is not None
            clusters._process.kill()
        with clusters.running() as one:
            assert produce(one) == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"brokers": 0}, "brokers must be a number of at least 1, not 0"),
        ({"brokers": "3"}, "brokers must be a number of at least 1, not '3'"),
        ({"brokers": True}, "not True"),
        ({"journal": -1}, "journal must be a number of at least 0, not -1"),
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, "listeners must be a list"),
        ({"kafka": 4.1}, "kafka is a string, such as '4.1', not 4.1"),
        ({"properties": {"num.partitions": 4}}, "num.partitions is a string, such as '4', not 4"),
    ],
)
def test_impossible_values_are_refused_before_start(wrong: Any, says: str) -> None:
    with Clusters() as clusters:
        with pytest.raises(CannotStart, match=re.escape(says)), clusters.running(**wrong):
            pass
        assert clusters._process is None


def test_unused_host_process_is_never_started() -> None:
    with Clusters() as clusters:
        assert clusters._process is None


class TestWithUnittest(unittest.TestCase):
    """The same without pytest."""

    clusters = Clusters()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.clusters.close()

    def setUp(self) -> None:
        self.kafka = self.enterContext(self.clusters.running())

    def test_first(self) -> None:
        self.assertEqual(produce(self.kafka), 0)

    def test_second(self) -> None:
        self.assertEqual(produce(self.kafka), 0)
