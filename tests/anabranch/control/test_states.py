"""Over HTTP, a cluster is reset or restored with rules, journal and clock; forks start from it."""

from __future__ import annotations

import socket
import threading
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


def test_refused_snapshot_leaves_the_time(ours: RunningCluster, tmp_path: Path) -> None:
    with Clusters() as clusters, clusters.running(1) as other:
        other.clock.advance("7d")
        other.snapshots.take("later")
        other.snapshots.save("later", tmp_path / "later.zip")
    ours.snapshots.load("later", tmp_path / "later.zip")
    before_ms = ours.clock.time_ms
    with pytest.raises(ControlError, match=r"the snapshot has brokers \(1,\); this cluster has \(1, 2, 3\)"):
        ours.snapshots.restore("later")
    assert 0 <= ours.clock.time_ms - before_ms < 1_800_000
    ours.snapshots.remove("later")


def test_snapshot_during_a_restore_has_all_nodes(ours: RunningCluster) -> None:
    ours.snapshots.take("before")
    restoring = threading.Thread(target=ours.snapshots.restore, args=("before",))
    restoring.start()
    taken = 0
    while restoring.is_alive():
        ours.snapshots.take(f"during {taken}")
        taken += 1
    restoring.join()
    assert taken and [row["running"] for row in ours.snapshots.rows()] == [[1, 2, 3]] * (taken + 1)
    for row in ours.snapshots.rows():
        ours.snapshots.remove(row["snapshot"])


def test_restore_under_a_rule_that_withholds_metadata_is_refused_at_once(ours: RunningCluster) -> None:
    ours.snapshots.take("before")
    rule = ours.faults.add(name="stale", stale_metadata=True)
    with pytest.raises(ControlError, match="cannot become ready while rule stale withholds metadata; remove it"):
        ours.snapshots.restore("before")
    rule.release()
    ours.snapshots.restore("before")
    rule.remove()
    ours.snapshots.remove("before")


def test_reset_while_another_process_uses_a_port_is_refused_with_the_reason(ours: RunningCluster) -> None:
    host, port = ours.bootstrap_servers.split(",")[1].split(":")
    ours.nodes[2].kill()
    with socket.create_server((host, int(port))):
        with pytest.raises(
            ControlError, match=r"not all nodes have started again: .* address already in use"
        ) as refused:
            ours.reset()
        assert refused.value.status == 409
    ours.reset()
    assert all(node.running for node in ours.nodes.values())


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
