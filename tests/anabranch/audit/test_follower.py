"""Following a query: its batches, progress and results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.audit import results
from anabranch.audit.audit_snapshot import AuditSnapshot
from anabranch.audit.follower import Follower
from anabranch.protocol.lineage import Lineage
from anabranch.spark_jobs.audit import Target
from anabranch.spark_jobs.progress import Progress
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.tallies import Ledger
from tests.anabranch.audit.made import BEGAN_MS, counted, rows
from tests.spark_jobs.live import LiveCluster


@pytest.fixture(scope="module")
def live() -> Iterator[LiveCluster]:
    with LiveCluster(1) as cluster:
        yield cluster


class Told:
    """A query's reported state."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []
        self.status = {"message": "Initializing sources"}

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.recentProgress[-1] if self.recentProgress else None

    def batch(self, number: int, records: int, ends: dict[str, dict[str, int]]) -> None:
        self.recentProgress.append(
            {
                "batchId": number,
                "timestamp": "2026-11-21T11:36:37.220Z",
                "numInputRows": records,
                "durationMs": {"triggerExecution": 500},
                "stateOperators": [{"memoryUsedBytes": 900}],
                "sources": [{"endOffset": ends}],
            }
        )


def written(target: Target) -> None:
    """What a batch leaves behind."""
    tallies = [list(row) for row in rows(lost=2)]
    bucket = {"keys": 2, "clock_ms": BEGAN_MS, "tallies": tallies, "stored": 4, "waiting": {"billing": 3}, "passed": 1}
    target.summary.write_text(json.dumps({"0": bucket}))
    ledger = Ledger()
    ledger.take(0, [counted()])
    target.beside.write_text(json.dumps(ledger.as_json()))


def test_snapshot_follows_query_progress_and_output(live: LiveCluster, tmp_path: Path) -> None:
    topic, audited = live.create("orders-audit", 2), live.create("orders", 2)
    live.grow(audited, 3)
    live.produce(topic, [(0, b"k", b"v")] * 5 + [(1, b"k", b"v")] * 3)
    target, query, sight = Target(live.servers, topic, tmp_path, Scope(audited)), Told(), AuditSnapshot(topic)
    follower = Follower(target, lambda: query, sight, lambda: BEGAN_MS)
    follower.poll()
    assert sight == AuditSnapshot(topic, behind=8, answered_ms=BEGAN_MS), "nothing is judged yet"
    written(target)
    query.batch(0, 6, {topic: {"0": 4, "1": 2}})
    follower.poll()
    assert (sight.judgement["delivered"], sight.judgement["lost"]) == (10, 2)
    assert (sight.behind, sight.records, sight.delivered_ms) == (1 + 1, 6, BEGAN_MS + 2900)
    assert (sight.judgement["waiting"], sight.judgement["passed"]) == (3, 1)
    assert [one.took_ms for one in sight.hand_offs] == [150]
    assert sight.speeds == [20]
    query.batch(1, 0, {topic: {"0": 4, "1": 2}})  # Spark says now and then that nothing happened
    query.batch(1, 2, {topic: {"0": 5, "1": 3}})
    follower.poll()
    follower.poll()
    assert (sight.behind, sight.records) == (0, 8)
    kept = results.read_progress(tmp_path / results.PROGRESS)
    assert [(one.batch, one.records) for one in kept] == [(0, 6), (1, 2)]
    assert Follower(target, lambda: query, AuditSnapshot(topic), lambda: BEGAN_MS)._lineages["orders"] == Lineage(
        1, [(0, 2), (1, 3)]
    )


def test_restarted_audit_goes_on_from_what_it_had_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metrics would say that there are no violations until the next record comes."""
    monkeypatch.setattr("anabranch.audit.follower.ASK_TIMEOUT_S", 0.1)
    target, query, sight = Target("127.0.0.1:1", "t", tmp_path), Told(), AuditSnapshot("t")
    written(target)
    results.append_progress(tmp_path / results.PROGRESS, Progress(4, BEGAN_MS, 10, 500, 900))
    follower = Follower(target, lambda: query, sight, lambda: BEGAN_MS)
    follower.poll()
    assert (sight.judgement["lost"], sight.records, sight.delivered_ms) == (2, 10, BEGAN_MS + 2900)
    assert (sight.behind, sight.silent) == (0, False), "it is not known yet how far Spark has read"
    query.batch(5, 3, {"t": {"0": 4}})
    follower.poll()
    assert (sight.records, sight.speeds) == (13, []), "nothing was delivered since"


def test_query_has_started_when_it_waits_for_input(tmp_path: Path) -> None:
    """A query without input has no batch; waiting for data shows that it has started."""
    busy, idle = Told(), Told()
    target = Target("s", "t", tmp_path)
    followers = [Follower(target, lambda q=q: q, AuditSnapshot("t"), lambda: BEGAN_MS) for q in (busy, idle)]  # type: ignore[misc]
    assert not any(one.has_started for one in followers)
    busy.batch(0, 6, {})
    idle.status = {"message": "Waiting for data to arrive"}
    assert all(one.has_started for one in followers)


def test_unresponsive_cluster_keeps_last_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.audit.follower.ASK_TIMEOUT_S", 0.1)
    target, query, sight = Target("127.0.0.1:1", "t", tmp_path), Told(), AuditSnapshot("t", behind=7)
    written(target)
    query.batch(0, 6, {"t": {"0": 4}})
    Follower(target, lambda: query, sight, lambda: BEGAN_MS).poll()
    assert (sight.behind, sight.judgement["delivered"], sight.hand_offs) == (7, 10, [])
    assert (sight.silent, sight.answered_ms) == (True, BEGAN_MS)
