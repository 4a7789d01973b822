"""The report of an audited run, and the comparison of two audits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from anabranch.chaos.audit_companion import moments
from anabranch.chaos.audited import AuditCompanion, Comparison
from anabranch.chaos.faults import FAULTS, Fired
from anabranch.clients.clock import wall_clock_ms

VERDICT = {"verdict": {"delivered": 3, "redelivered": 1}, "rows": [{"generation": 0}], "hand_offs": [], "clean": True}
SAME = Comparison(VERDICT, dict(VERDICT), ["a"], ["a"])


async def test_faults_and_resizes_have_wall_clock_times() -> None:
    now_s, now_ms = asyncio.get_running_loop().time(), wall_clock_ms()
    fired = [Fired("kill", "node 2", now_s - 500, now_s - 499), Fired("isolate", "node 1", now_s - 900, now_s - 2)]
    first, second, third = moments(fired, [(now_s - 300, now_s - 299.5, 6)])
    assert [one.kind for one in (first, second, third)] == ["network", "kill", "resize"]
    assert abs(second.t_ms - (now_ms - 500_000)) < 60_000
    assert (second.text, second.label) == ("kill: node 2, for 1.0 s", "kill")
    assert (third.text, third.label) == ("orders has 6 partitions, 0.5 s after it was asked", "6 partitions")


async def test_every_kind_of_fault_has_a_lane() -> None:
    lanes = {one.text.partition(":")[0]: one.kind for one in moments([Fired(name, "", 0, 0) for name in FAULTS], ())}
    assert lanes["kill two brokers"] == lanes["crash the controller at a step"] == "kill"
    assert lanes["crash a consumer"] == lanes["replace a consumer"] == "client"
    assert (lanes["full disk"], lanes["freeze"], lanes["cut a link"]) == ("disk", "freeze", "network")


def test_audits_are_equal_only_in_every_part() -> None:
    assert SAME.equal and SAME.clean
    assert not replace(SAME, batch_lines=["b"]).equal
    assert not replace(SAME, batch={**VERDICT, "rows": []}).equal
    assert not replace(SAME, batch={**VERDICT, "verdict": {"delivered": 4}}).equal
    assert not replace(SAME, stream={**VERDICT, "clean": False}).clean
    assert not replace(SAME, stream={**VERDICT, "verdict": {"delivered": 0}}).clean, "nothing was audited"


def test_missing_verdict_is_a_failure(tmp_path: Path) -> None:
    companion = AuditCompanion(tmp_path, print)
    assert not companion.good and companion.lines() == ["no verdict of the audit"]
    companion.comparison = replace(SAME, batch_lines=["b"])
    assert not companion.good and "audit: stream and batch job DIFFER" in companion.lines()
    companion.comparison = SAME
    assert companion.good and "nothing was violated" in companion.lines()[0]
