"""A cluster reports its state after a failed test, as far as possible."""

from __future__ import annotations

import pytest

from anabranch.clients.topic_admin import NewTopic
from anabranch.cluster.zookeeper import free_port
from anabranch.control.client import ControlClient
from anabranch.control.control_error import ControlError
from anabranch.testing.clusters import Clusters
from anabranch.testing.running_cluster import RunningCluster
from tests.running import running


def test_report_has_last_rules_events_and_exchanges() -> None:
    with Clusters() as clusters, clusters.running(journal=100) as kafka:
        with kafka.faults(name="slow", api="CreateTopics", delay_ms=1):
            kafka.topic("orders")
        told = kafka.report()
        (rule,) = told.rules
        assert (rule["name"], rule["hits"], rule["removed"]) == ("slow", 1, True)
        assert any(one["kind"] == "fault" for one in told.events)
        assert any(one["rules"] == ["slow"] for one in told.exchanges)
        began = kafka.report_start()
        kafka.topic("payments")
        since = kafka.report(began)
        assert {one["topic"] for one in since.events if "topic" in one} == {"payments"}
        assert all(one["number"] > began.exchange for one in since.exchanges) and since.exchanges
        with clusters.running() as plain:
            plain.topic("orders")
            assert plain.report().events and not plain.report().exchanges


def test_report_of_a_shared_cluster_has_the_rules_of_this_test_only() -> None:
    with Clusters() as clusters, clusters.running() as kafka:
        for _ in range(2):
            kafka.faults.add(name="slow", api="CreateTopics", delay_ms=1).remove()
        kept = kafka.faults.add(name="kept", api="DeleteTopics", delay_ms=1)
        began = kafka.report_start()
        kafka.faults.add(name="slow", api="CreateTopics", delay_ms=1).remove()
        assert [rule["name"] for rule in kafka.report(began).rules] == ["slow", "kept"]
        kept.remove()
        assert [rule["name"] for rule in kafka.report(began).rules] == ["slow", "kept"]


def test_misspelled_argument_of_topic_is_told_from_its_configs() -> None:
    with Clusters() as clusters, clusters.running() as kafka:
        with pytest.raises(ControlError, match="Unknown topic config name: replication") as refused:
            kafka.topic("orders", replication="3")
        assert refused.value.__notes__ == [
            "topic() takes name, partitions and replicas; all other arguments are topic configs"
        ]


def test_fork_is_controlled_with_the_same_token() -> None:
    """A fork of a container has its token: each call to its control plane was refused."""
    with running("up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0", "--control-token", "secret") as up:
        kafka = RunningCluster(up["bootstrap"], ControlClient(up["control"], "secret"))
        with kafka.fork() as other:
            assert [row["running"] for row in other.control.state()["nodes"]] == [True]


def test_admin_of_a_listener_is_that_of_the_fork_too_and_of_an_unknown_one_is_refused() -> None:
    listeners = ["INSIDE://127.0.0.1:0", "OUTSIDE://127.0.0.1:0"]
    properties = {
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with Clusters() as clusters, clusters.running(listeners=listeners, properties=properties) as kafka:
        kafka.admin_as("OUTSIDE").create_topics([NewTopic(name="orders")])
        with kafka.fork() as other:
            assert other.admin_as("OUTSIDE").list_topics() == ["orders"]
            assert set(other.listeners.values()).isdisjoint(kafka.listeners.values())
        with pytest.raises(ValueError, match=r"no listener 'OUTSIDES'; did you mean OUTSIDE\?"):
            kafka.admin_as("OUTSIDES")
    with pytest.raises(ValueError, match="no listener 'OUTSIDE'; the listeners of this cluster are unknown"):
        RunningCluster("127.0.0.1:1").admin_as("OUTSIDE")


def test_without_control_plane_report_is_empty() -> None:
    assert list(RunningCluster("127.0.0.1:1").report().sections()) == []
    with pytest.raises(RuntimeError, match="pip install"):
        RunningCluster("127.0.0.1:1").topic()


def test_unreachable_cluster_is_reported() -> None:
    gone = RunningCluster("127.0.0.1:1", ControlClient(f"http://127.0.0.1:{free_port()}"))
    ((title, text),) = gone.report().sections()
    assert title == "cluster" and "cannot connect to" in text
