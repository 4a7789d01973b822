"""librdkafka processes write delivery logs; one member is killed, and the audit checks the logs."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from anabranch.cli.audit import command
from anabranch.spark_jobs import session
from tests.spark_jobs.live import LiveCluster

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.processes]

EXAMPLE = Path(__file__).parents[2] / "examples/written_down.py"
COUNT = 10_000
PATIENCE_S = 120


def start(*words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(EXAMPLE), *map(str, words)])


def lines_in(file: Path) -> int:
    return len(file.read_bytes().splitlines()) if file.exists() else 0


def test_killed_group_member_loses_no_delivery_log(
    live: LiveCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command judges in the Spark that tests share."""
    monkeypatch.setattr(session, "AuditSpark", lambda *_, **__: contextlib.nullcontext(spark))
    servers = live.servers
    live.create("written-down", 4, replicas=3)
    stored, handed = tmp_path / "stored.jsonl", tmp_path / "handed.jsonl"
    assert start("send", servers, "written-down", stored, COUNT).wait(PATIENCE_S) == 0
    readers = [start("receive", servers, "written-down", handed, 1 << 30) for _ in range(2)]
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while lines_in(handed) < COUNT // 4 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        readers[0].kill()
        while len(places_read(handed)) < COUNT and time.monotonic() < deadline_s:
            time.sleep(0.5)  # each look takes all lines apart
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    words = ("--deliveries", str(handed), "--sent", str(stored), "--out", str(tmp_path / "out"))
    audit = CliRunner().invoke(command, list(words))
    assert audit.exit_code == 0, audit.output
    (file,) = (tmp_path / "out").rglob("verdict.json")
    verdict = json.loads(file.read_text())["verdict"]
    assert (verdict["delivered"], verdict["keys"]) == (COUNT, 100)


def places_read(file: Path) -> set[tuple[int, int]]:
    """Where the records lay that were handed out."""
    rows = [json.loads(line) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return {(row["partition"], row["offset"]) for row in rows}
