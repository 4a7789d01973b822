"""The verdict of a run, as an event and as a table."""

from __future__ import annotations

from anabranch.chaos.archive import ClusterHistory
from anabranch.chaos.clients import Record
from anabranch.chaos.faults import Fired
from anabranch.chaos.plan import Plan
from anabranch.chaos.verdict import SEEN_HERE, Verdict, report

KILL = Fired("kill", "node 2", 1.0, 2.0)


def verdict(anomalies: list[str], fired: list[Fired], second_opinion: tuple[str, ...] = ()) -> Verdict:
    record = Record(ClusterHistory(complete=True))
    return Verdict(Plan(), anomalies, fired, record, 3.0, 0, second_opinion=second_opinion)


def test_event_of_a_run_without_violations_says_passed() -> None:
    assert verdict([], [KILL]).event() == {
        "passed": True,
        "faults": 1,
        "checks": len(SEEN_HERE),
        "violations": 0,
        "first": [],
    }


def test_event_counts_the_violations_of_both_judges_and_has_the_first() -> None:
    event = verdict(["A1: lost"], [KILL], ("gone",)).event()
    assert (event["passed"], event["violations"], event["first"]) == (False, 2, ["A1: lost"])


def test_run_in_which_only_the_judge_found_something_does_not_pass() -> None:
    event = verdict([], [KILL], ("gone",)).event()
    assert (event["passed"], event["violations"], event["first"]) == (False, 1, ["gone"])


def test_run_without_faults_does_not_pass() -> None:
    without = verdict([], [])
    assert not without.event()["passed"]
    assert any(line.startswith("FAILED: no fault has happened") for line in report(without))


def test_table_has_a_line_for_each_violation() -> None:
    lines = list(report(verdict(["A1: lost"], [KILL], ("gone",))))
    assert "  A1: lost" in lines and "  gone" in lines
    assert any(line.startswith("kill  ") for line in lines)
