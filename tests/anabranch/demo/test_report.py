"""The page that a demonstration leaves behind."""

from __future__ import annotations

from pathlib import Path

from anabranch.demo import report
from tests.anabranch.demo.test_progress import judged, told


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
