"""What is done with clusters between two tests; clusters in one process stand for processes, which start in seconds."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest

from anabranch.broker.config.properties_file import properties_of
from anabranch.control.control_error import ControlError
from anabranch.protocol.errors import KafkaError
from anabranch.testing import process_clusters
from anabranch.testing.clusters import Clusters
from anabranch.testing.process_clusters import (
    ProcessClusters,
    ProcessesUnavailable,
    ProcessSettings,
    StartedCluster,
    empty,
    start_processes,
)
from anabranch.testing.running_cluster import RunningCluster

SETTINGS = ProcessSettings(brokers=2, properties={}, journal=100, frames=False, kafka="")


@pytest.fixture(scope="module")
def hosted() -> Iterator[Clusters]:
    with Clusters() as clusters:
        yield clusters


@pytest.fixture
def kept(hosted: Clusters) -> Iterator[ProcessClusters]:
    def start(settings: ProcessSettings) -> StartedCluster:
        ending = contextlib.ExitStack()
        running = hosted.running(settings.brokers, journal=settings.journal, properties=settings.properties)
        return StartedCluster(settings, ending.enter_context(running), ending)

    clusters = ProcessClusters(start)
    yield clusters
    clusters.close()


def member_of(kafka: RunningCluster, group: str, **more: str) -> confluent_kafka.Consumer:
    """A consumer that is a member of a group.

    It has its assignment: while that is on its way, `close` of librdkafka 2.16 may never return.
    """
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, **more})
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    kafka.wait_for(group=group, state="Stable", members=1)
    return consumer


def test_cluster_that_a_test_has_damaged_is_empty_and_whole_for_the_next(kept: ProcessClusters) -> None:
    with kept.running(SETTINGS) as kafka:
        kafka.topic("orders", partitions=2)
        member_of(kafka, "billing").close()
        kafka.faults.add(api="Metadata", delay_ms=1)
        kafka.nodes[1].shift_clock("-1h")
        kafka.nodes[1].kill()
        kafka.nodes[2].shift_clock("5m")
        kafka.nodes[2].suspend_session()
        kafka.nodes[2].freeze()
    assert kafka.faults.rows() == [] and not any(row.get("frozen") for row in kafka.control.state()["nodes"])
    with pytest.raises(ControlError, match="node 2 is not cut off from ZooKeeper"):
        kafka.nodes[2].resume_session()
    with kept.running(SETTINGS) as again:
        assert again is kafka
        assert all(node.running for node in again.nodes.values())
        state = again.control.state()
        assert [row["clock_offset_ms"] for row in state["nodes"]] == [0, 0]
        assert [row["topic"] for row in state["topics"] if not row["topic"].startswith("__")] == []
        assert state["groups"] == [] and again.journal.entries(api="CreateTopics", limit=1) == []
        again.topic("orders")
        again.wait_for(topic="orders", partitions=1, isr="1,2")


def test_cluster_is_replaced_for_other_settings(kept: ProcessClusters) -> None:
    with kept.running(SETTINGS) as first:
        pass
    with kept.running(replace(SETTINGS, brokers=1)) as second:
        assert second.bootstrap_servers.count(":") == 1
    assert first.report().unreachable
    with kept.running(replace(SETTINGS, brokers=1)) as third:
        assert third is second


def test_cluster_whose_group_has_a_member_is_replaced(kept: ProcessClusters, caplog: pytest.LogCaptureFixture) -> None:
    with kept.running(SETTINGS) as first:
        first.topic("orders")
        # A static member stays when it stops. One that stops after its cluster could reach the next one at its port.
        member_of(first, "billing", **{"group.instance.id": "one"}).close()
    with caplog.at_level(logging.WARNING), kept.running(SETTINGS) as second:
        assert second is not first and second.control.state()["topics"] == []
    assert "the cluster of processes is replaced: NON_EMPTY_GROUP" in caplog.text


def test_cluster_that_has_ended_is_replaced(kept: ProcessClusters) -> None:
    with kept.running(SETTINGS) as first:
        pass
    assert kept._kept is not None
    kept._kept.ending.close()
    with kept.running(SETTINGS) as second:
        assert second is not first and len(second.nodes) == 2


def test_two_clusters_at_a_time_are_two(kept: ProcessClusters) -> None:
    with kept.running(SETTINGS) as first, kept.running(SETTINGS) as second:
        assert first.bootstrap_servers != second.bootstrap_servers
        first.topic("orders")
        assert second.control.state()["topics"] == []


def test_cluster_of_a_block_that_raises_is_used_again(kept: ProcessClusters) -> None:
    with contextlib.suppress(ZeroDivisionError), kept.running(SETTINGS) as first:
        raise ZeroDivisionError
    with kept.running(SETTINGS) as second:
        assert second is first


def test_name_of_a_slowly_deleted_topic_is_free_when_a_cluster_is_empty(hosted: Clusters) -> None:
    with hosted.running(brokers=2) as kafka:
        kafka.topic("orders")
        with kafka.faults(api="StopReplica", between_brokers=True, delay_ms=500) as rule:
            empty(kafka)
            assert rule.hits
            kafka.topic("orders")


def test_group_with_a_member_is_not_deleted(hosted: Clusters) -> None:
    with hosted.running() as kafka:
        kafka.topic("orders")
        consumer = member_of(kafka, "billing")
        with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
            empty(kafka)
        consumer.close()


def test_properties_are_in_a_private_file_and_on_no_command_line(tmp_path: Path) -> None:
    path = tmp_path / "cluster.properties"
    words = replace(SETTINGS, properties={"num.partitions": "4"}, frames=True).options(path)
    assert "num.partitions" not in " ".join(words) and "--control-frames" in words
    assert path.stat().st_mode & 0o077 == 0
    assert properties_of(str(path), ()) == {"num.partitions": "4", "zookeeper.session.timeout.ms": "3000"}


def test_session_timeout_of_a_test_has_priority(tmp_path: Path) -> None:
    path = tmp_path / "cluster.properties"
    replace(SETTINGS, properties={"zookeeper.session.timeout.ms": "9000"}).options(path)
    assert properties_of(str(path), ()) == {"zookeeper.session.timeout.ms": "9000"}


def test_without_its_libraries_a_cluster_is_unavailable_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_clusters.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ProcessesUnavailable, match=r"pip install 'anabranch\[control\]'"):
        start_processes(SETTINGS)
