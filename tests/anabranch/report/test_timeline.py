"""A timeline is computed separately from its drawing."""

from __future__ import annotations

from anabranch.report.timeline import median, percentile, rates, waiting


def test_rate_is_computed_between_distant_reports() -> None:
    assert rates([]) == []
    assert rates([(0, 0), (500, 10), (1000, 30), (1100, 90), (2000, 130)]) == [(1000, 30.0), (2000, 100.0)]


def test_pending_count_is_acknowledged_minus_delivered() -> None:
    acked = [(0, 0), (100, 50), (200, 80)]
    assert waiting(acked, [(50, 0), (150, 20), (250, 80), (260, 90)]) == [(50, 0), (150, 30), (250, 0), (260, 0)]
    assert waiting([(100, 5)], [(50, 3)]) == [], "nothing is known of that time"


def test_median_and_percentile_of_values() -> None:
    assert (median([9, 1, 5]), percentile([1, 2, 3, 4], 50), percentile([1, 2, 3, 4], 99)) == (5, 3, 4)
