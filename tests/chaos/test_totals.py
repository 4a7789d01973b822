"""Runs add their counts to a file, and the totals are those of all of its lines."""

from __future__ import annotations

from pathlib import Path

from anabranch.chaos.archive import ClusterHistory
from anabranch.chaos.clients import Record
from anabranch.chaos.faults import Fired
from anabranch.chaos.plan import Plan
from anabranch.chaos.totals import add_run, read_runs, report
from anabranch.chaos.verdict import Verdict


def verdict(seed: int, *faults: str, anomalies: int = 0) -> Verdict:
    fired = [Fired(name, "node 2", 1.0, 2.0) for name in faults]
    return Verdict(Plan(seed=seed), ["A1: lost"] * anomalies, fired, Record(ClusterHistory(complete=True)), 1800.0, 0)


def test_totals_are_those_of_all_runs(tmp_path: Path) -> None:
    path = tmp_path / "out" / "totals.jsonl"
    assert read_runs(path) == []
    assert len(add_run(path, verdict(1, "kill", "kill", "freeze"))) == 1
    runs = add_run(path, verdict(2, "freeze", "freeze", "freeze", anomalies=1))
    assert [run["seed"] for run in runs] == [1, 2]
    assert list(report(runs)) == [
        "all 2 runs: 1.0 h, 6 faults, 0 resizes, 0 records acknowledged, 0 deliveries, 1 violations",
        "  freeze 4, kill 2",
    ]
