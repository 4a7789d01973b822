"""Over HTTP, a cluster is reset or restored with rules, journal and clock; forks start from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from anabranch.control.client import ControlClient, ControlError
from anabranch.testing.clusters import Clusters
from anabranch.testing.running_cluster import RunningCluster


@pytest.fixture(scope="module")
def ours() -> Iterator[RunningCluster]:
    with Clusters() as clusters, clusters.running(3, journal=100) as kafka:
        yield kafka


def produce(kafka: RunningCluster, topic: str = "orders") -> list[int]:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    sent: list[int] = []
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, message: sent.append(message.offset()))
    assert producer.flush(60) == 0
    return sent


def topics(kafka: RunningCluster) -> list[str]:
    return [one["topic"] for one in kafka.control.state()["topics"]]


def test_reset_restores_an_empty_cluster(ours: RunningCluster) -> None:
    servers = ours.bootstrap_servers
    ours.topic("orders")
    assert produce(ours) == [0]
    ours.faults.add(api="Produce", hold=True)
    ours.nodes[2].kill()
    ours.nodes[3].suspend_session()
    ours.clock.stop()
    ours.clock.advance("7d")
    newest = ours.control.events()[-1]["number"]
    ours.reset()
    state = ours.control.state()
    assert [one["running"] for one in state["nodes"]] == [True] * 3
    assert state["topics"] == state["groups"] == state["transactions"] == []
    assert ours.faults.rows() == [] and ours.journal.entries() == []
    assert ours.clock.pace == 1
    assert (ours.bootstrap_servers, produce(ours)) == (servers, [0])
    ours.nodes[3].suspend_session()
    ours.nodes[3].resume_session()
    kinds = [one["kind"] for one in ours.control.events(newest)]
    assert "reset" in kinds and kinds.count("leader") >= 1


def test_restore_returns_to_the_snapshot(ours: RunningCluster, tmp_path: Path) -> None:
    ours.reset()
    ours.topic("orders")
    assert produce(ours) == [0]
    ours.clock.advance("1h")
    kept = ours.snapshots
    kept.take("one record")
    ahead_ms = ours.clock.time_ms
    ours.clock.advance("1h")
    assert produce(ours) == [1]
    kept.restore("one record")
    assert 0 <= ours.clock.time_ms - ahead_ms < 1_800_000
    assert produce(ours) == [1]
    kept.save("one record", tmp_path / "one.zip")
    with ours.fork() as other, ours.fork("one record") as third:
        assert (produce(other), produce(third), produce(ours)) == ([2], [1], [2])
        assert topics(other) == ["orders"]
        assert other.clock.time_ms > ahead_ms
    with pytest.raises(ConnectionError):
        third.control.state()
    ours.reset()
    assert topics(ours) == []
    kept.load("again", tmp_path / "one.zip")
    assert [(one["snapshot"], one["running"]) for one in kept.rows()] == [
        ("one record", [1, 2, 3]),
        ("again", [1, 2, 3]),
    ]
    kept.restore("again")
    assert produce(ours) == [1]
    kept.remove("again")
    kept.remove("one record")
    assert kept.rows() == []


def test_stopped_clock_stays_stopped_after_restore(ours: RunningCluster) -> None:
    ours.snapshots.take("now")
    with ours.clock.stopped():
        ours.snapshots.restore("now")
        assert ours.clock.pace == 0
        assert len(ours.nodes) == 3
    ours.snapshots.remove("now")


def test_missing_or_invalid_snapshot_is_refused(ours: RunningCluster, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.zip"
    wrong.write_bytes(b"x")
    for attempt, status, reason in [
        (lambda: ours.snapshots.restore("x"), 404, "there is no snapshot x; there are none"),
        (lambda: ours.snapshots.remove("x"), 404, "there is no snapshot x"),
        (lambda: ours.snapshots.fork("x"), 404, "there is no snapshot x"),
        (lambda: ours.snapshots.end_fork(7), 404, "there is no fork 7"),
        (lambda: ours.control.ask("DELETE", "/v1/state/forks/x"), 404, "there is no fork 0"),
        (lambda: ours.snapshots.load("x", wrong), 400, "not a snapshot"),
    ]:
        with pytest.raises(ControlError, match=reason) as refused:
            attempt()
        assert refused.value.status == status
    assert isinstance(ours.control, ControlClient)
