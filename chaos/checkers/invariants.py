"""The invariants of resizes, I0 to I15: what each says, which checkers hold it, and how much a history has to show.

A checker that had nothing to look at has shown nothing, so every invariant counts its evidence; the resize scenario of
the simulation fails when one of them has none. I11 and I12 promise progress: the run itself waits for them (L1, L2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from anabranch.chaos.history import History

PROGRESS: Final = "L1 no convergence"
LIVENESS: Final = "L2 not handed out"


@dataclass(frozen=True, slots=True)
class Invariant:
    """One of them. `evidence` counts the events that the checkers compared."""

    name: str
    says: str
    checkers: tuple[str, ...]
    evidence: Callable[[History], int]


def _cuts(history: History) -> int:
    return sum(state.generation > 0 for state in history.states)


def _resized(history: History) -> set[str]:
    return {one.topic for one in history.published if len(one.history) > 1}


INVARIANTS: Final = (
    Invariant(
        "I0 placement",
        "a record stands where its key belongs in the generation of its segment",
        ("B3 misrouted",),
        lambda h: len(h.stored),
    ),
    Invariant(
        "I1 epoch homogeneity",
        "one leader epoch, one generation; neither falls along a log",
        ("C15 epoch-of-generation", "B16 generation-falls"),
        lambda h: len(h.stored) + len(h.states),
    ),
    Invariant(
        "I2 boundary stability",
        "once told, no end of a segment is outgrown",
        ("B14 boundary-moved",),
        lambda h: len(h.resizes.boundaries),
    ),
    Invariant(
        "I3 produce order",
        "a key's records stand in one log in order, or in segments that follow one another",
        ("B13 log-order",),
        lambda h: len(h.sends),
    ),
    Invariant(
        "I4 delivery order",
        "nothing is handed out when the group is past something younger of its key",
        ("B1 key-order", "B15 replay-order"),
        lambda h: len(h.deliveries),
    ),
    Invariant(
        "I4' durable order",
        "what held a key before is committed before its next segment is handed out",
        ("B2 early-open",),
        lambda h: sum(delivery.generation > 0 for delivery in h.deliveries),
    ),
    Invariant(
        "I5 callbacks",
        "the old owner has flushed, and the new one is told, before the first record of a new segment",
        ("B12 callbacks",),
        lambda h: len(h.callbacks),
    ),
    Invariant(
        "I6 exactly once",
        "no record twice over all partitions; every acknowledged one is there",
        ("A2 duplicate", "A3 lost-write", "A4 unseen", "A25 sequence-gap"),
        lambda h: sum(send.outcome == "ok" for send in h.sends),
    ),
    Invariant(
        "I7 monotone",
        "generations, leader epochs and offsets never go back, for any process, over all lives of an index",
        ("B6 regress", "C6 epochs", "B17 index-reused", "A1 inconsistent-offsets"),
        lambda h: len(h.seen) + len(h.resizes.retired),
    ),
    Invariant(
        "I8 sealed",
        "no record in a partition that was merged away",
        ("B4 write-after-seal",),
        lambda h: sum(state.sealed for state in h.states),
    ),
    Invariant(
        "I9 metadata coupling",
        "no client is shown a leader epoch of a generation that is not published (R12)",
        ("B18 shown-too-early",),
        lambda h: len(h.resizes.shown),
    ),
    Invariant(
        "I10 removal",
        "only what is sealed, empty and without open transactions is removed",
        ("B19 removed-too-early",),
        lambda h: len(h.resizes.retired),
    ),
    Invariant("I11 convergence", "every plan is carried out", (PROGRESS,), lambda h: len(h.published)),
    Invariant(
        "I12 gate liveness",
        "every record is delivered and committed in the end",
        (PROGRESS, LIVENESS),
        lambda h: len(h.stored),
    ),
    Invariant(
        "I13 confinement",
        "partitions whose keys a resize does not move are not written, fenced, refused or gated",
        ("B20 unaffected-touched",),
        lambda h: _cuts(h) + len(h.resizes.refused) + len(h.resizes.gated),
    ),
    Invariant(
        "I14 idempotence",
        "every plan, cut, publication and removal happens once",
        ("B21 step-repeated",),
        lambda h: len(h.resizes.topics),
    ),
    Invariant(
        "I15 legacy isolation",
        "a topic that was never resized knows no generation, seal, refusal or gate; a stamp orders it first",
        ("B22 legacy-touched", "B23 mark-late", "B24 outsider-let-in"),
        lambda h: sum(state.place[0] not in _resized(h) for state in h.states) + len(h.resizes.let_in),
    ),
)
