"""A histogram with fixed buckets, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """The number of observations in each bucket, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Add an observation; bounds are inclusive."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield (bound, observations up to it), last (infinity, all)."""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield bound, total
