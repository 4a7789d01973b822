"""Goal: a cluster tells what to look at when a test has failed, as far as it can."""

from __future__ import annotations

import json

import pytest

from anabranch.cluster.zookeeper import free_port
from anabranch.control.client import ControlClient
from anabranch.testing.clusters import Clusters
from anabranch.testing.running_cluster import SHOWN, RunningCluster


def test_a_report_has_the_last_rules_events_and_exchanges() -> None:
    with Clusters() as clusters, clusters.running(journal=100) as kafka:
        with kafka.faults(name="slow", api="CreateTopics", delay_ms=1):
            kafka.topic("orders")
        told = dict(kafka.report())
        assert list(told) == ["rules", "events", "journal"]
        (rule,) = map(json.loads, told["rules"].splitlines())
        assert (rule["name"], rule["hits"], rule["removed"]) == ("slow", 1, True)
        assert any(json.loads(one)["kind"] == "fault" for one in told["events"].splitlines())
        exchanges = [json.loads(one) for one in told["journal"].splitlines()]
        assert any(one["rules"] == ["slow"] for one in exchanges) and len(exchanges) <= SHOWN
        with clusters.running() as plain:
            assert [title for title, _ in plain.report()] == ["rules", "events"]


def test_without_a_control_plane_there_is_none() -> None:
    assert list(RunningCluster("127.0.0.1:1").report()) == []
    with pytest.raises(RuntimeError, match="pip install"):
        RunningCluster("127.0.0.1:1").topic()


def test_a_cluster_that_is_gone_says_so() -> None:
    gone = RunningCluster("127.0.0.1:1", ControlClient(f"http://127.0.0.1:{free_port()}"))
    ((title, text),) = gone.report()
    assert title == "cluster" and "nobody answers at" in text
