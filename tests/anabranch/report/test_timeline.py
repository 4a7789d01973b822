"""A timeline is computed separately from its drawing."""

from __future__ import annotations

from anabranch.report.timeline import median, percentile, rates, waiting


def test_a_rate_is_taken_between_reports_that_are_far_enough_apart() -> None:
    assert rates([]) == []
    assert rates([(0, 0), (500, 10), (1000, 30), (1100, 90), (2000, 130)]) == [(1000, 30.0), (2000, 100.0)]


def test_waiting_is_what_was_acknowledged_by_then_and_not_delivered() -> None:
    acked = [(0, 0), (100, 50), (200, 80)]
    assert waiting(acked, [(50, 0), (150, 20), (250, 80), (260, 90)]) == [(50, 0), (150, 30), (250, 0), (260, 0)]
    assert waiting([(100, 5)], [(50, 3)]) == [], "nothing is known of that time"


def test_the_middle_and_the_end_of_some_values() -> None:
    assert (median([9, 1, 5]), percentile([1, 2, 3, 4], 50), percentile([1, 2, 3, 4], 99)) == (5, 3, 4)
