"""What schedules met: each action beside the phase of a resize, other actions under way, and client protocols.

An action is a fault or a chore. It is counted once it has had its effect, in the phases in which it began and ended,
and with each action that was under way at some moment of its own time. `python -m tests.sim --coverage` prints the
tables; a pair that never occurs is a hole, and a reason for an aim.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.sim.cluster import SimCluster
from tests.sim.phases import PHASES, phase_of

Pair = tuple[str, str]


@dataclass(eq=False)
class _Span:
    """One action, while it is under way."""

    kind: str
    phase: str
    beside: set[str]
    happened: bool = False


@dataclass
class Coverage:
    """The pairs that one schedule met."""

    cluster: SimCluster
    phases: Counter[Pair] = field(default_factory=Counter)
    """(action, phase of a resize)."""
    meetings: Counter[Pair] = field(default_factory=Counter)
    """(action, action under way at the same time), in alphabetical order."""
    _under_way: list[_Span] = field(default_factory=list)

    @contextlib.contextmanager
    def during(self, kind: str) -> Iterator[_Span]:
        """Count the action of this block; the block sets `happened` if it had an effect."""
        span = _Span(kind, phase_of(self.cluster), {other.kind for other in self._under_way})
        for other in self._under_way:
            other.beside.add(kind)
        self._under_way.append(span)
        try:
            yield span
        finally:
            self._under_way.remove(span)
            if span.happened:
                self.phases.update((kind, phase) for phase in {span.phase, phase_of(self.cluster)})
                self.meetings.update((min(kind, other), max(kind, other)) for other in span.beside)


@dataclass
class Table:
    """The pairs of many schedules."""

    schedules: int = 0
    phases: Counter[Pair] = field(default_factory=Counter)
    meetings: Counter[Pair] = field(default_factory=Counter)
    protocols: Counter[Pair] = field(default_factory=Counter)
    """(action, protocol of a client in that schedule)."""

    def add(self, phases: Counter[Pair], meetings: Counter[Pair], protocols: Iterable[str]) -> None:
        """Add a schedule."""
        self.schedules += 1
        self.phases += phases
        self.meetings += meetings
        for protocol in protocols:
            for action, times in actions_of(phases).items():
                self.protocols[action, protocol] += times

    def lines(self) -> Iterator[str]:
        """The tables in Markdown, and the holes."""
        yield from _grid("action", self.phases, PHASES)
        yield ""
        yield from _grid("action", self.protocols, sorted({protocol for _, protocol in self.protocols}))
        yield ""
        actions = sorted(actions_of(self.phases))
        pairs = [(one, other) for place, one in enumerate(actions) for other in actions[place:]]
        missed = [pair for pair in pairs if not self.meetings[pair]]
        yield f"{self.schedules} schedules; {len(pairs) - len(missed)} of {len(pairs)} pairs of actions met"
        yield from (f"never met: {one} x {other}" for one, other in missed)
        yield from (f"never in the phase: {one} x {phase}" for one, phase in self.holes())

    def holes(self) -> list[Pair]:
        """The actions and phases that never met."""
        pairs = [(action, phase) for action in sorted(actions_of(self.phases)) for phase in PHASES]
        return [pair for pair in pairs if not self.phases[pair]]


def actions_of(phases: Counter[Pair]) -> Counter[str]:
    """How often each action is counted, over all phases."""
    found: Counter[str] = Counter()
    for (action, _), times in phases.items():
        found[action] += times
    return found


def _grid(title: str, counts: Counter[Pair], columns: Sequence[str]) -> Iterator[str]:
    yield f"| {title} | {' | '.join(columns)} |"
    yield f"|---{'|---:' * len(columns)}|"
    for row in sorted({action for action, _ in counts}):
        yield f"| {row} | {' | '.join(str(counts[row, column]) for column in columns)} |"
