"""The verdict of a chaos run, as a value and as a table."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.chaos.faults import FAULTS, Fired

if TYPE_CHECKING:
    from anabranch.chaos.clients import Record
    from anabranch.chaos.members import MemberGroup
    from anabranch.chaos.plan import Plan
    from anabranch.chaos.side_topic import SideTopic

LINES_MAX: Final = 50
"""How many violations of each judge are shown."""
_SEEN: Final = (
    "A1 A2 A3 A4 A5 A6 A7 A9 A11 A17 A19 A20 A21 A22 A23 A24 A25 B1 B2 B3 B4 B9 B12 B13 B15 B16 C1 C6 C15 C16"
)
SEEN_HERE: Final = frozenset(_SEEN.split())
"""The checkers with data in a run on real processes: those of clients, of ZooKeeper and of the logs. The others need a
simulation, which observes brokers from inside."""


@dataclass
class Verdict:
    """The outcome of a run."""

    plan: Plan
    anomalies: list[str]
    fired: list[Fired]
    record: Record
    elapsed_s: float
    restarts: int
    members: Sequence[MemberGroup] = ()
    sides: Sequence[SideTopic] = ()
    second_opinion: Sequence[str] = ()
    """The violations that the judge found, which shares no code with the checkers."""

    @property
    def good(self) -> bool:
        """Whether faults happened, and neither the checkers nor the judge found a violation."""
        return not self.anomalies and not self.second_opinion and bool(self.fired)

    def event(self) -> dict[str, Any]:
        """Return the fields of the event that tells the verdict to followers of the run."""
        found = [*self.anomalies, *self.second_opinion]
        return {
            "passed": self.good,
            "faults": len(self.fired),
            "checks": len(SEEN_HERE),
            "violations": len(found),
            "first": found[:1],
        }


def recoveries(fired: Fired, record: Record) -> tuple[float, float]:
    """Return (longest wait for an acknowledgement of records sent during the fault, time until all had one)."""
    longest, after = 0.0, 0.0
    for value, sent in record.sent_s.items():
        if fired.started_s <= sent <= fired.ended_s and value in record.acked_s:
            longest = max(longest, record.acked_s[value] - sent)
            after = max(after, record.acked_s[value] - fired.ended_s)
    return longest, after


def report(verdict: Verdict) -> Iterator[str]:
    """Yield the table of a run, line by line."""
    record, history = verdict.record, verdict.record.history
    by_name: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in verdict.fired:
        by_name[one.name].append(recoveries(one, record))
    yield f"{'fault':34} {'fired':>5} {'longest wait s':>15} {'recovered after s':>18} {'(median)':>9}"
    for name in FAULTS:
        rows = by_name.get(name, [])
        waits, after = [row[0] for row in rows], [row[1] for row in rows]
        figures = f"{max(waits):15.1f} {max(after):18.1f} {statistics.median(after):9.1f}" if rows else ""
        yield f"{name:34} {len(rows):5} {figures}"
    acked = sum(send.outcome == "ok" for send in history.sends)
    lags = sorted(record.delivered_s[one] - record.sent_s[one] for one in record.delivered_s if one in record.sent_s)
    yield (
        f"{len(history.sends)} records sent, {acked} acknowledged, {len(history.deliveries)} deliveries, "
        f"{len(record.resizes)} resizes, {verdict.restarts} restarts of readers, {verdict.elapsed_s:.0f} s"
    )
    yield from (one.summary() for one in verdict.members)
    yield from (one.summary() for one in verdict.sides)
    if lags:
        middle, most = lags[len(lags) // 2], lags[-1]
        yield f"from send to first delivery: median {middle * 1000:.0f} ms, most {most:.1f} s"
    if not verdict.fired:
        yield "FAILED: no fault has happened; a longer --duration or a shorter --pace makes some"
    yield f"{len(verdict.anomalies)} anomalies in {len(SEEN_HERE)} checks"
    yield from (f"  {line}" for line in verdict.anomalies[:LINES_MAX])
    yield f"second opinion: {len(verdict.second_opinion)} violations by the judge"
    yield from (f"  {line}" for line in verdict.second_opinion[:LINES_MAX])
