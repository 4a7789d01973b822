"""The totals of several chaos runs, kept in a file with one line of JSON for each run.

A long test can be split into runs of any length: each has its own cluster and seed, and adds a line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.chaos.verdict import Verdict


def counts_of(verdict: Verdict) -> dict[str, Any]:
    """Return the line of a run."""
    record, history = verdict.record, verdict.record.history
    return {
        "seed": verdict.plan.seed,
        "seconds": round(verdict.elapsed_s),
        "faults": Counter(one.name for one in verdict.fired),
        "resizes": len(record.resizes),
        "records": sum(send.outcome == "ok" for send in history.sends),
        "deliveries": len(history.deliveries) + sum(len(one.deliveries) for one in verdict.members),
        "violations": len(verdict.anomalies) + len(verdict.second_opinion),
    }


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Read the lines of earlier runs; create the file if it is missing. Raises OSError, ValueError for another file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return [json.loads(line) for line in path.read_text().splitlines()]


def add_run(path: Path, verdict: Verdict) -> list[dict[str, Any]]:
    """Append the line of a run; return all lines. Raises OSError."""
    with path.open("a") as file:
        file.write(json.dumps(counts_of(verdict)) + "\n")
    return read_runs(path)


def report(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the totals of all runs, line by line."""
    faults = sum((Counter(run["faults"]) for run in runs), Counter[str]())
    hours = sum(run["seconds"] for run in runs) / 3600
    yield (
        f"all {len(runs)} runs: {hours:.1f} h, {faults.total()} faults, {sum(run['resizes'] for run in runs)} resizes, "
        f"{sum(run['records'] for run in runs):,} records acknowledged, "
        f"{sum(run['deliveries'] for run in runs):,} deliveries, {sum(run['violations'] for run in runs)} violations"
    )
    yield "  " + ", ".join(f"{name} {count}" for name, count in faults.most_common())
