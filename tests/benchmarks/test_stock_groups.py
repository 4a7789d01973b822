"""Short runs of stock groups on a growing topic: in order with gates, out of order without."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.audit import delivery_log
from anabranch.chaos.ledger import Ledger
from benchmarks.stock_groups import Course, line, play

pytestmark = pytest.mark.processes


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in file.read_text().splitlines()]


def judged(course: Course, folder: Path) -> tuple[Ledger, int]:
    """Return a run's outcome, and the number of undelivered records."""
    run = play(course, folder)
    assert (run.total, run.grown, run.killed) == (course.records, course.resizes, course.kills)
    ledger, stored = Ledger(), Counter[bytes]()
    for row in rows(folder / "handed.jsonl"):
        ledger.hand_out(row["key"].encode(), row["sequence"], row["partition"], row["offset"])
    for file in folder.glob("sent-*.jsonl"):
        stored.update(row["key"].encode() for row in rows(file))
    assert stored.total() == course.records
    return ledger, ledger.missing(stored)


LATE = Course(records=40_000, resizes=16, kills=0, late=True)
"""A group that has much to read hands out children before parents, if nobody holds it back."""


@pytest.mark.costly
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_keys_keep_order_when_group_starts_late(protocol: str, tmp_path: Path) -> None:
    ledger, missing = judged(replace(LATE, protocol=protocol), tmp_path)
    assert (ledger.found, missing) == (0, 0), ledger.anomalies
    assert len(ledger.ends) == 20, "every partition was read"


@pytest.mark.costly
def test_keys_lose_order_without_gates(tmp_path: Path) -> None:
    """A fast consumer may get everything in order by chance, so there are three tries."""
    for attempt in range(3):
        (folder := tmp_path / str(attempt)).mkdir()
        if judged(replace(LATE, gates=False), folder)[0].found:
            return
    raise AssertionError("everything was handed out in order, three times")


@pytest.mark.costly
def test_keys_keep_order_while_topic_grows_and_member_dies(tmp_path: Path) -> None:
    ledger, missing = judged(Course(records=20_000, resizes=4, kills=1), tmp_path)
    assert (ledger.found, missing) == (0, 0), ledger.anomalies


def test_audit_reads_delivery_log() -> None:
    (one,) = delivery_log.deliveries([delivery_log.Lines("file", [line("k", 7, 3, 91, "r0")])])
    assert (one.key, one.sequence, one.partition, one.offset, one.member) == (b"k", 7, 3, 91, "r0")
