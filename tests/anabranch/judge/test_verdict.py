"""The verdict as text."""

from __future__ import annotations

from anabranch.judge.verdict import SHOWN, Verdict


def test_verdict_without_violations_has_passed() -> None:
    lines = Verdict(stored=2000, delivered=2100, redelivered=100, keys=7).lines()
    assert lines == [
        "2,000 records of 7 keys stored; 2,100 delivered, 100 of them again",
        "PASSED: no violation",
    ]


def test_verdict_without_stored_records_counts_deliveries_only() -> None:
    assert Verdict(delivered=3, redelivered=1).lines()[0] == "3 delivered, 1 of them again"


def test_verdict_shows_the_first_violations_of_each_kind() -> None:
    verdict = Verdict()
    for number in range(SHOWN + 5):
        verdict.add("lost", b"k", f"number {number}")
    verdict.add("misplaced", b"k", "number 1")
    lines = verdict.lines()
    assert lines[-1] == "FAILED"
    assert f"{SHOWN + 5} x lost" in lines
    assert sum("lost: key k" in line for line in lines) == SHOWN
    assert "  misplaced: key k: number 1" in lines
