"""The report of a demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.demo import report
from anabranch.demo.progress import Story
from anabranch.demo.report import VIOLATIONS
from tests.anabranch.demo.test_progress import judged, progress_of_job


def test_report_has_both_measures_of_a_hand_off(tmp_path: Path) -> None:
    """The plot shows how long gates were closed, which is longer than the hand-off."""
    assert progress_of_job().closed_ms() == [530]
    report.write(tmp_path / "report.html", [progress_of_job(), judged("control", out_of_order=7)])
    page = (tmp_path / "report.html").read_text()
    assert "median of 530 ms, the longest for 530 ms" in page
    assert "took a median of 30 ms, the longest 30 ms" in page


def test_control_run_shows_its_violations(tmp_path: Path) -> None:
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
    report.write(tmp_path / "report.html", [progress_of_job(), control])
    page = (tmp_path / "report.html").read_text()
    assert "out of order: key N14228 (number 8)" in page
    assert "delivered before" in page


def test_report_is_self_contained(tmp_path: Path) -> None:
    report.write(tmp_path / "report.html", [progress_of_job(), judged("control", out_of_order=7)])
    page = (tmp_path / "report.html").read_text()
    assert "2 partitions" in page and "<svg" in page
    assert "<script" not in page and "<link" not in page, "nothing is fetched from elsewhere"
    assert "All 10 records were delivered in order, each once" in page
    assert "<div class='card bad'><b>7</b><span>out of order</span>" in page


@pytest.mark.parametrize("kind", VIOLATIONS)
def test_violation_of_any_kind_is_in_headline_and_cards(kind: str, tmp_path: Path) -> None:
    report.write(tmp_path / "report.html", [judged("job", **{kind: 2}), judged("control", out_of_order=7)])
    page = (tmp_path / "report.html").read_text()
    assert "<h1>2 violations among 10 records</h1>" in page
    assert f"<div class='card bad'><b>2</b><span>{kind.replace('_', ' ')}</span>" in page


def test_missing_records_are_in_the_headline(tmp_path: Path) -> None:
    report.write(tmp_path / "report.html", [judged("job", delivered=9), judged("control", out_of_order=7)])
    page = (tmp_path / "report.html").read_text()
    assert "<header class='bad'>" in page and "<h1>9 of 10 records were delivered</h1>" in page


def full(topic: str, seconds: int) -> Story:
    """A story as long as those of the demonstration: samples of 8 partitions and 3 readers, four times a second."""
    story = judged(topic)
    story.began_ms, story.ended_ms = 0, 1000 * seconds
    for n in range(4 * seconds):
        counts = {str(index): 111 * n + index for index in range(8)}
        line = {"event": "progress", "t": 250 * n, "sent": 9, "acked": 9, "failed": 0, "by_partition": counts}
        story.take(f"{topic}-replay", line)
        for reader in range(3):
            read = {"event": "progress", "t": 250 * n, "delivered": counts, "assigned": [], "gates": []}
            story.take(f"{topic}-reader-{reader}", read)
    for n in range(40):
        story.note(1000 * n, "resize", f"{topic} has {n} partitions", f"{n} partitions")
        story.openings.append(
            {"key_epoch": f"{n % 8}@3", "partition": n % 8, "closed_ms": 900 * n, "opened_ms": 950 * n}
        )
    return story


def test_report_of_a_whole_demonstration_is_less_than_a_megabyte(tmp_path: Path) -> None:
    report.write(tmp_path / "report.html", [full("flights", 120), full("flights-today", 60)])
    assert 50_000 < (tmp_path / "report.html").stat().st_size < 1_000_000


def test_report_of_a_failed_job_starts_with_the_failure(tmp_path: Path) -> None:
    report.write(tmp_path / "report.html", [judged("job", lost=2, out_of_order=1), judged("control")])
    page = (tmp_path / "report.html").read_text()
    assert "<header class='bad'>" in page and "<h1>3 violations among 10 records</h1>" in page
