"""The data of a report's timeline: record rates, waiting records, and actions on the cluster.

Times are times of day in ms; only the plot counts seconds from the beginning. Independent of the plotting library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

RATE_WINDOW_MS: Final = 900
SECONDS_FROM_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Moment:
    """An action on the cluster, or an event in it."""

    t_ms: int
    kind: str
    text: str
    label: str = ""
    """A few words for the timeline; empty: not shown there."""


class Span(NamedTuple):
    """A move of keys: from the last record of the old partition to the first one of the new partition."""

    name: str
    partition: int
    began_ms: int
    ended_ms: int

    @property
    def took_ms(self) -> int:
        """How long the application got no records of these keys."""
        return self.ended_ms - self.began_ms


class Offence(NamedTuple):
    """A violation on the timeline."""

    t_ms: int
    kind: str
    text: str


@dataclass(slots=True)
class Timeline:
    """One run from its first record to its last."""

    began_ms: int
    ended_ms: int
    rates: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    """Name of a partition -> (time, records per second)."""
    rates_title: str = "records per second, by partition"
    waiting: Sequence[tuple[int, int]] = ()
    """(time, stored but undelivered records)."""
    moments: Sequence[Moment] = ()
    spans: Sequence[Span] = ()
    spans_title: str = "hand-offs"
    offences: Sequence[Offence] = ()

    def seconds(self, t_ms: float) -> float:
        """Seconds since the beginning."""
        return (t_ms - self.began_ms) / 1000


def rates(series: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    """Records per second between samples of a running count that are at least `RATE_WINDOW_MS` apart."""
    found: list[tuple[int, float]] = []
    if not series:
        return found
    before_ms, before = series[0]
    for t_ms, count in series[1:]:
        if t_ms - before_ms >= RATE_WINDOW_MS:
            found.append((t_ms, 1000 * (count - before) / (t_ms - before_ms)))
            before_ms, before = t_ms, count
    return found


def waiting(acked: Sequence[tuple[int, int]], delivered: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stored but undelivered records at each sample of deliveries; both inputs are running counts in order of time."""
    found: list[tuple[int, int]] = []
    place = 0
    for t_ms, count in delivered:
        while place + 1 < len(acked) and acked[place + 1][0] <= t_ms:
            place += 1
        if acked and acked[place][0] <= t_ms:
            found.append((t_ms, max(0, acked[place][1] - count)))
    return found


def median(values: Sequence[int]) -> int:
    """The median of a non-empty list."""
    return sorted(values)[len(values) // 2]


def percentile(values: Sequence[int], percent: float) -> int:
    """The value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def duration(ms: int) -> str:
    """Format a duration."""
    return f"{ms:,} ms" if abs(ms) < SECONDS_FROM_MS else f"{ms / 1000:,.1f} s"


def pluralize(count: int, what: str) -> str:
    """Format a count with its noun."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
