"""Collects the findings of an audit, from the files of a stream or the result of a batch job."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.audit.findings import Findings
from anabranch.protocol.lineage import Lineage
from anabranch.report.timeline import Moment
from anabranch.spark_jobs import audit, lineages, violations
from anabranch.spark_jobs.progress import Progress

if TYPE_CHECKING:
    from anabranch.spark_jobs.backfill import Backfill

LINEAGES = "lineages.json"
PROGRESS = "progress.jsonl"
VERDICT = "verdict.json"
REPORT = "report.html"
FOLLOWING = "following"
"""A file that exists while a stream reads its input: not while Spark starts, and not after the end."""


def of_stream(target: audit.Target, judgement: Mapping[str, int], moments: Sequence[Moment] = ()) -> Findings:
    """The findings of a stream, from its files."""
    return Findings(
        topic=target.topic,
        expect=target.expect,
        judgement=judgement,
        rows=audit.tallies(target),
        unread=audit.unread(target),
        counted=audit.read_ledger(target).total(),
        lineages=lineages.load(target.directory / LINEAGES),
        stories=list(itertools.islice(violations.read(target.violations), violations.NAMED_MAX)),
        found=violations.count(target.violations),
        moments=moments,
        progress=read_progress(target.directory / PROGRESS),
    )


def of_batch(
    topic: str,
    expect: str | None,
    found: Backfill,
    known: Mapping[str, Lineage],
    moments: Sequence[Moment] = (),
) -> Findings:
    """The findings of a batch job."""
    return Findings(
        topic=topic,
        expect=expect,
        judgement=found.judgement,
        rows=found.tallies,
        unread=found.unread,
        counted=found.beside,
        lineages=known,
        stories=[json.loads(line) for line in found.violations[: violations.NAMED_MAX]],
        found=len(found.violations),
        moments=moments,
        how="afterwards",
    )


def topics(findings: Findings) -> set[str]:
    """The topics whose lineage the report needs."""
    return {topic for _, topic in findings.audiences()} | ({findings.expect} if findings.expect else set())


def append_progress(path: Path, progress: Progress) -> None:
    """Append a batch to the progress file."""
    with path.open("a") as lines:
        lines.write(json.dumps(progress) + "\n")


def read_progress(path: Path) -> list[Progress]:
    """All batches since the audit's start, including restarts."""
    return [Progress(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def write_verdict(path: Path, verdict: Mapping[str, Any]) -> None:
    """Write the verdict as JSON, for tools. The file appears when it is complete."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(verdict, indent=1, sort_keys=True) + "\n")
    fresh.replace(path)
