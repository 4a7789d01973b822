"""A histogram as Prometheus knows it: how many observations there were up to each bound, and their sum."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """A histogram: how many observations there were up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Count an observation; one that is equal to a bound counts below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(bound, how many were not above it), ending with (infinity, all)."""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield bound, total
