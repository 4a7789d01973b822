"""librdkafka processes write delivery logs; one member is killed, and the audit checks the logs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.spark_jobs.java import why_missing

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.processes, pytest.mark.anabranch(brokers=3)]

EXAMPLE = Path(__file__).parents[2] / "examples/written_down.py"
COUNT = 20_000
PATIENCE_S = 120


def start(*words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(EXAMPLE), *map(str, words)])


def lines_in(file: Path) -> int:
    return len(file.read_bytes().splitlines()) if file.exists() else 0


def test_a_killed_member_of_a_group_takes_nothing_with_it(anabranch: Any, tmp_path: Path) -> None:
    if why_missing() is not None:
        pytest.skip(f"NO SPARK: {why_missing()}")
    servers = anabranch.bootstrap_servers
    anabranch.topic("orders", partitions=4)
    stored, handed = tmp_path / "stored.jsonl", tmp_path / "handed.jsonl"
    assert start("send", servers, "orders", stored, COUNT).wait(PATIENCE_S) == 0
    readers = [start("receive", servers, "orders", handed, 1 << 30) for _ in range(2)]
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while lines_in(handed) < COUNT // 4 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        readers[0].kill()
        while len(partitions_read(handed)) < COUNT and time.monotonic() < deadline_s:
            time.sleep(0.1)
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    words = ("--deliveries", str(handed), "--sent", str(stored), "--out", str(tmp_path / "out"))
    audit = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", "audit", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert audit.returncode == 0, audit.stdout + audit.stderr
    (file,) = (tmp_path / "out").rglob("verdict.json")
    verdict = json.loads(file.read_text())["verdict"]
    assert (verdict["delivered"], verdict["keys"]) == (COUNT, 100)


def partitions_read(file: Path) -> set[tuple[int, int]]:
    """Where the records lay that were handed out."""
    rows = [json.loads(line) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return {(row["partition"], row["offset"]) for row in rows}
