"""What a report's timeline shows, as data: how fast records came, how many waited, what was done meanwhile.

Times are of the day, in ms; only the picture counts seconds from the beginning. Nothing here knows what draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

RATE_WINDOW_MS: Final = 900
SECONDS_FROM_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that was done to the cluster, or that it did."""

    t_ms: int
    kind: str
    text: str
    label: str = ""
    """A few words for the timeline; none: not drawn there."""


class Span(NamedTuple):
    """Keys that changed hands: from the last that the old partition gave to the first that the new one did."""

    name: str
    partition: int
    began_ms: int
    ended_ms: int

    @property
    def took_ms(self) -> int:
        """How long the application got nothing of these keys."""
        return self.ended_ms - self.began_ms


class Offence(NamedTuple):
    """A violation, as far as a timeline shows it."""

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
    """(time, records that were stored and not yet delivered)."""
    moments: Sequence[Moment] = ()
    spans: Sequence[Span] = ()
    spans_title: str = "hand-offs"
    offences: Sequence[Offence] = ()

    def seconds(self, t_ms: float) -> float:
        """Seconds since the beginning."""
        return (t_ms - self.began_ms) / 1000


def rates(series: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    """Records per second between reports of a running count that are at least `RATE_WINDOW_MS` apart."""
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
    """Stored but not yet delivered, at each report of deliveries; both are running counts in the order of time."""
    found: list[tuple[int, int]] = []
    place = 0
    for t_ms, count in delivered:
        while place + 1 < len(acked) and acked[place + 1][0] <= t_ms:
            place += 1
        if acked and acked[place][0] <= t_ms:
            found.append((t_ms, max(0, acked[place][1] - count)))
    return found


def median(values: Sequence[int]) -> int:
    """The median of the values, of which there is at least one."""
    return sorted(values)[len(values) // 2]


def percentile(values: Sequence[int], percent: float) -> int:
    """The value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def duration(ms: int) -> str:
    """A time as people say it."""
    return f"{ms:,} ms" if abs(ms) < SECONDS_FROM_MS else f"{ms / 1000:,.1f} s"


def pluralize(count: int, what: str) -> str:
    """So many of something."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
