"""The invariants of resizes, I0 to I15: their text, their checkers, and the evidence that a history needs.

A checker that examined nothing proves nothing, so every invariant counts its evidence. The resize scenario of the
simulation fails if one of them has none. I11 and I12 promise progress: the run itself waits for them (L1, L2).
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
    """One invariant. `evidence` counts the events that the checkers compared."""

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
        "a record is in the partition of its key in the generation of its key epoch",
        ("B3 misrouted",),
        lambda h: len(h.stored),
    ),
    Invariant(
        "I1 epoch homogeneity",
        "a leader epoch has one generation; neither decreases along a log",
        ("C15 epoch-of-generation", "B16 generation-falls"),
        lambda h: len(h.stored) + len(h.states),
    ),
    Invariant(
        "I2 boundary stability",
        "a key epoch never grows beyond an end that was reported",
        ("B14 boundary-moved",),
        lambda h: len(h.resizes.boundaries),
    ),
    Invariant(
        "I3 produce order",
        "a key's records are in order in one log, or in key epochs that follow one another",
        ("B13 log-order",),
        lambda h: len(h.sends),
    ),
    Invariant(
        "I4 delivery order",
        "no record is delivered after the group has passed a newer one of its key",
        ("B1 key-order", "B15 replay-order"),
        lambda h: len(h.deliveries),
    ),
    Invariant(
        "I4' durable order",
        "earlier key epochs of a key are committed before its next key epoch is delivered",
        ("B2 early-open",),
        lambda h: sum(delivery.generation > 0 for delivery in h.deliveries),
    ),
    Invariant(
        "I5 callbacks",
        "the old owner has flushed, and the new owner's callback has run, before the first record of a new key epoch",
        ("B12 callbacks",),
        lambda h: len(h.callbacks),
    ),
    Invariant(
        "I6 exactly once",
        "no record exists twice over all partitions; every acknowledged one exists",
        ("A2 duplicate", "A3 lost-write", "A4 unseen", "A25 sequence-gap"),
        lambda h: sum(send.outcome == "ok" for send in h.sends),
    ),
    Invariant(
        "I7 monotone",
        "generations, leader epochs and offsets never decrease, for any process, over all incarnations of an index",
        ("B6 regress", "C6 epochs", "B17 index-reused", "A1 inconsistent-offsets"),
        lambda h: len(h.seen) + len(h.resizes.retired),
    ),
    Invariant(
        "I8 sealed",
        "no record is appended to a sealed partition",
        ("B4 write-after-seal",),
        lambda h: sum(state.sealed for state in h.states),
    ),
    Invariant(
        "I9 metadata coupling",
        "no client sees a leader epoch of an unpublished generation (R12)",
        ("B18 shown-too-early",),
        lambda h: len(h.resizes.shown),
    ),
    Invariant(
        "I10 removal",
        "only a sealed, empty partition without open transactions is removed",
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
        "a topic that was never resized has no generation, seal, refusal or gate; the first batch with a generation "
        "waits for the mark",
        ("B22 legacy-touched", "B23 mark-late", "B24 outsider-let-in"),
        lambda h: sum(state.place[0] not in _resized(h) for state in h.states) + len(h.resizes.let_in),
    ),
)
