from pathlib import Path
from typing import Any

import pytest

from anabranch.demo import report
from anabranch.demo.scenario import failures
from anabranch.demo.story import Story


def judged(topic: str, **changes: int) -> Story:
    story = Story(topic, total=10, began_ms=1000, ended_ms=9000)
    story.verdict = {"delivered": 10, "out_of_order": 0, "lost": 0, "repeated": 0, "redelivered": 0} | changes
    story.acked = 10
    return story


def test_the_job_passes_only_if_nothing_was_violated_and_the_control_was_caught() -> None:
    assert failures(judged("job"), judged("control", out_of_order=3)) == []


@pytest.mark.parametrize("change", [{"out_of_order": 1}, {"lost": 1}, {"repeated": 1}, {"delivered": 9}])
def test_any_violation_fails_the_demonstration(change: dict[str, int]) -> None:
    assert len(failures(judged("job", **change), judged("control", out_of_order=3))) == 1


def test_an_audit_without_bite_fails_the_demonstration() -> None:
    (reason,) = failures(judged("job"), judged("control"))
    assert "no bite" in reason


def test_an_unjudged_job_fails_the_demonstration() -> None:
    story = judged("job")
    story.verdict = {}
    assert len(failures(story, judged("control", out_of_order=3))) == 4


def told() -> Story:
    story = judged("job")
    lines: list[tuple[str, dict[str, Any]]] = [
        ("job-replay", {"event": "progress", "t": 1000, "sent": 0, "acked": 0, "failed": 0, "by_partition": {"0": 0}}),
        (
            "job-reader-1",
            {"event": "progress", "t": 2000, "delivered": {"0": 4}, "assigned": [0], "gates": ["job-1@1"]},
        ),
        ("job-reader-1", {"event": "revoked", "t": 2500, "partitions": [0]}),
        (
            "job-reader-2",
            {"event": "opened", "t": 2600, "segment": "1@1", "partition": 1, "closed_ms": 2000, "opened_ms": 2530},
        ),
        (
            "job-replay",
            {"event": "done", "t": 3000, "sent": 10, "acked": 10, "failed": 0, "by_partition": {"0": 6, "1": 4}},
        ),
        ("job-reader-2", {"event": "progress", "t": 3500, "delivered": {"1": 4}, "assigned": [1], "gates": []}),
    ]
    for name, line in lines:
        story.take(name, line)
    story.note(2400, "resize", "job has 2 partitions", "2 partitions")
    return story


def test_a_story_is_the_sum_of_what_the_processes_say() -> None:
    story = told()
    assert (story.acked, story.delivered) == (10, 8)
    assert story.gates == {"job-reader-1": ["job-1@1"], "job-reader-2": []}
    assert story.acked_by_partition == {0: 6, 1: 4}


def test_a_hand_off_is_counted_from_the_crossing_not_from_the_closing() -> None:
    assert told().hand_offs_ms() == [("1@1", 30)]


def test_the_report_names_both_measures_of_a_hand_off(tmp_path: Path) -> None:
    """The plot draws how long gates were closed, which is longer than what the hand-off itself took."""
    assert told().closed_ms() == [530]
    report.write(tmp_path / "report.html", [told(), judged("control", out_of_order=7)])
    page = (tmp_path / "report.html").read_text()
    assert "median of 530 ms, the longest for 530 ms" in page
    assert "took a median of 30 ms, the longest 30 ms" in page


def test_the_control_shows_what_was_caught(tmp_path: Path) -> None:
    place = {
        "producer": 7,
        "partition": 1,
        "offset": 4,
        "generation": -1,
        "member": "m",
        "incarnation": 1,
        "group_generation": 1,
    }
    control = judged("control", out_of_order=7)
    control.examples = [
        {
            "kind": "out_of_order",
            "meaning": "handed out after a later record of its key",
            "group": "readers",
            "topic": "control",
            "key": "N14228",
            "before": {**place, "sequence": 9, "time_ms": 1000},
            "delivered": {**place, "sequence": 8, "time_ms": 2000},
        }
    ]
    report.write(tmp_path / "report.html", [told(), control])
    page = (tmp_path / "report.html").read_text()
    assert "out of order: key N14228 (number 8)" in page
    assert "handed out before" in page


def test_the_report_stands_alone(tmp_path: Path) -> None:
    report.write(tmp_path / "report.html", [told(), judged("control", out_of_order=7)])
    page = (tmp_path / "report.html").read_text()
    assert "2 partitions" in page and "Plotly.newPlot" in page
    assert "<script src" not in page and "<link" not in page, "nothing is fetched from elsewhere"
    assert "All 10 records were delivered in order, each once" in page
    assert "<div class='card bad'><b>7</b><span>out of order</span>" in page


def test_the_report_of_a_job_that_failed_says_so_first(tmp_path: Path) -> None:
    report.write(tmp_path / "report.html", [judged("job", lost=2, out_of_order=1), judged("control")])
    page = (tmp_path / "report.html").read_text()
    assert "<header class='bad'>" in page and "<h1>3 violations among 10 records</h1>" in page
