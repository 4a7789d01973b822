"""A histogram counts each observation once, in its bucket."""

from __future__ import annotations

import math

from anabranch.broker.metrics.fences import BOUNDS_S
from anabranch.broker.metrics.histogram import Histogram


def test_buckets_are_cumulative_and_include_their_bounds() -> None:
    histogram = Histogram(BOUNDS_S)
    for value in (0.0, 0.001, 0.0011, 60.0, 61.0):
        histogram.observe(value)
    buckets = list(histogram.cumulative())
    assert buckets[:2] == [(0.001, 2), (0.0025, 3)]
    assert buckets[-2:] == [(60.0, 4), (math.inf, 5)]
    assert (histogram.count, histogram.sum) == (5, sum((0.0, 0.001, 0.0011, 60.0, 61.0)))
