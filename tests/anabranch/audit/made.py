"""Handmade findings: one topic in one group over a split and a merge."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.audit.findings import Findings
from anabranch.protocol.lineage import Lineage
from anabranch.spark_jobs import verdict
from anabranch.spark_jobs.progress import Progress
from anabranch.spark_jobs.tallies import Tallies
from anabranch.spark_jobs.verdict import COUNTED, KINDS, Event, Tally, Violation

BEGAN_MS = 1_700_000_000_000
LINEAGE = Lineage(1, [(0, 2), (1, 3), (2, 2)])
EVENT = Event("billing", "orders", 7, b"k1", 4, 0, 12, 1, BEGAN_MS + 2500, 1, "r1.2", 0xABC, 3)
EARLY = Violation.of(
    verdict.BEFORE_GATE, EVENT, before=EVENT._replace(sequence=5, partition=2, offset=0, time_ms=BEGAN_MS + 2400)
)
LOST = Violation(verdict.LOST, "billing", "orders", 7, b"<k2>", before=EVENT, sequences=((3, 5), (9, 9)))


def counted(stored: int = 10) -> Tallies:
    """Ten records: (partition, generation, ms after the beginning)."""
    places = [(0, 0, 0), (0, 0, 900), (1, 0, 1500), (2, 1, 1050), (2, 1, 1400)]
    places += [(0, 1, 1700), (0, 1, 2500), (2, 1, 2600), (0, 2, 2860), (0, 2, 2900)]
    rows = np.array([(0, partition, generation, BEGAN_MS + ms, 1) for partition, generation, ms in places])
    made = Tallies()
    made.deliver(
        [("billing", "orders")],
        dict(zip(("name", "partition", "generation", "time_ms", "count"), rows.T, strict=True)),
    )
    if stored:
        made.store("orders", np.zeros(stored, np.int64), BEGAN_MS + 300 * np.arange(stored))
    return made


def rows(**wrong: int) -> list[Tally]:
    """Three generations; what is wrong is so in the second."""
    zeros = dict.fromkeys((*COUNTED, *KINDS), 0)
    made = [Tally("billing", "orders", g, {**zeros, "delivered": n, "events": n}) for g, n in ((0, 3), (1, 5), (2, 2))]
    made[1] = made[1]._replace(counts={**made[1].counts, **wrong})
    return made


def findings(*violations: Violation, **more: Any) -> Findings:
    """An audit that found these."""
    wrong: dict[str, int] = {}
    for one in violations:
        wrong[one.kind] = wrong.get(one.kind, 0) + max(1, sum(last - first + 1 for first, last in one.sequences))
    its_rows = rows(**wrong)
    given: dict[str, Any] = {
        "topic": "orders-audit",
        "expect": "orders",
        "judgement": verdict.judge(its_rows, keys=2),
        "rows": its_rows,
        "counted": counted(),
        "lineages": {"orders": LINEAGE},
        "stories": [one.story() for one in violations],
        "found": len(violations),
        "progress": [Progress(0, BEGAN_MS, 20, 400, 5000)],
    }
    return Findings(**{**given, **more})
