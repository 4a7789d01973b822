"""The runs of the models: small instances, and their expected results.

`python -m tests.model` explores all of them and prints the table; the tests take the quick ones one by one. A run that
is expected to go wrong names what must be found: rules that nothing can break are not known to do anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import base_of
from tests.model import delivery
from tests.model.assigning_runs import ASSIGNING
from tests.model.delivery import Delivery, Logs, in_transactions, logs_of, spread, with_tail
from tests.model.explorer import Outcome, explore
from tests.model.marking import Marking
from tests.model.marking import Rules as MarkingRules
from tests.model.member_runs import LEASES, SHARING
from tests.model.production import Load, Production, without
from tests.model.resizing import Procedure, Resizing
from tests.model.run import Explore, Produced, Run, Script
from tests.model.verifying import Verifying

# -- which scripts

ONE_KEY: Final[tuple[Script, ...]] = (
    ((1, 2), (1,)),
    ((2, 1), (1,)),
    ((1, 2, 4), (3,)),
    ((1, 4), (3,)),
    ((4, 2, 1), (3,)),
    ((1, 2, 1), (1,)),
    ((2, 1, 2), (1,)),
    ((1, 2, 1, 2), (1,)),
    ((4, 1), (3,)),
    ((2, 4, 1), (3,)),
    ((4, 2, 1, 4), (3,)),
)
TWO_KEYS: Final[tuple[Script, ...]] = (
    ((1, 2), (0, 1)),
    ((2, 1), (0, 1)),
    ((1, 2, 4), (1, 3)),
    ((2, 3, 2), (0, 2)),
    ((1, 2, 1), (0, 1)),
)
DEEP: Final[tuple[Script, ...]] = (
    ((1, 2, 4, 8), (7,)),
    ((8, 4, 2, 1), (7,)),
    ((1, 8, 1), (7,)),
    ((1, 2, 4, 2, 1), (3,)),
    ((2, 3, 5, 3, 2), (1,)),
)
BELOW_THE_BASE: Final[tuple[Script, ...]] = (
    ((3, 2), (2,)),
    ((3, 2, 3), (2,)),
    ((3, 2, 1, 5), (5,)),
    ((3, 1, 2), (1,)),
    ((5, 2, 7), (4,)),
    ((7, 4, 2, 1), (6,)),
)
"""Partitions hold several residues there: what the last one merges into need not be half of anything."""
BELOW_THE_BASE_TWO_KEYS: Final[tuple[Script, ...]] = (((3, 2, 3), (0, 2)), ((3, 2, 1), (1, 2)))
PUBLISHED: Final[tuple[Script, ...]] = tuple(
    one for one in ONE_KEY if one[0] not in ((2, 1, 2), (1, 2, 1, 2), (4, 2, 1, 4))
)
"""Without growth while a deletion is pending, which the published text does not allow."""
SHRINKING: Final[tuple[Script, ...]] = tuple(one for one in ONE_KEY if list(one[0]) == sorted(one[0], reverse=True))
SPLIT, MERGE = ((1, 2),), ((2, 1),)
BOTH: Final = (*SPLIT, *MERGE)
BACK_AND_FORTH: Final = ((1, 2, 1), (2, 1, 2))


# -- producers and leaders


def produce(scripts: Iterable[tuple[int, ...]], load: Load, **defects: object) -> Explore:
    """Every instance of the production model over these scripts."""

    def instances() -> Iterator[Outcome]:
        for counts in scripts:
            yield explore(Production(counts, load, without(**defects)))

    return instances


ASYNC: Final = {"adoption": "asynchronous"}
TWO: Final = Load((1, 1))
PUBLISHED_PRODUCER: Final = {
    "generation_chosen_at": "request",
    "rehash": False,
    "barrier": False,
    "atomic_switch": False,
    "check": "count",
}
PRODUCTION: Final = (
    Run("repaired", produce((*BOTH, *BACK_AND_FORTH, (1, 4)), TWO)),
    Run("repaired, a key that moves twice", produce(((1, 2, 4),), Load((3, 3)))),
    Run("repaired, leaders adopt when they like", produce((*BOTH, (1, 2, 1), (1, 4)), TWO, **ASYNC)),
    Run("repaired, three records", produce(BOTH, Load((1, 1, 1)))),
    Run("repaired, an answer is lost", produce((*BOTH, (1, 2, 1)), replace(TWO, lost_answers=1))),
    Run("repaired, batches are given up", produce((*BOTH, (1, 2, 1)), replace(TWO, gives_up=True))),
    Run("repaired, two keys of two classes", produce(((1, 2), (2, 1)), Load((0, 1, 1)))),
    Run("repaired, one class is not touched", produce(((2, 3),), Load((0, 1, 2)))),
    Run("repaired, below the base", produce(((3, 2), (3, 1), (3, 2, 4)), Load((2, 2)))),
    Run("repaired, below the base, two keys of several residues", produce(((3, 2),), Load((0, 2, 2)))),
    Run("repaired, below the base, asynchronous", produce(((3, 2), (3, 2, 1)), Load((2, 2)), **ASYNC)),
    Run("repaired, two levels below the base", produce(((5, 2), (5, 1)), Load((4, 4))), slow=True),
    Run("repaired, acks=1 and a leader's tail is lost", produce(BOTH, replace(TWO, acks_all=False, failovers=1))),
    Run("repaired, a transaction across the resize", produce((*BOTH, (1, 2, 1)), replace(TWO, transactional=True))),
    Run("repaired, four partitions merged into one", produce(((2, 4, 1),), Load((3, 3))), slow=True),
    Run("repaired, merged into one, asynchronous", produce(((2, 4, 1),), Load((3, 3)), **ASYNC), slow=True),
    Run("repaired, three records there and back", produce(((1, 2, 1),), Load((1, 1, 1))), slow=True),
    Run("repaired, three records, twice back", produce(((1, 2, 1, 2),), Load((1, 1, 1))), slow=True),
    Run("repaired, twice back, asynchronous", produce(((1, 2, 1, 2),), Load((1, 1, 1)), **ASYNC), slow=True),
    Run("repaired, a key that moves three times", produce(((1, 2, 4, 8),), Load((7, 7, 7))), slow=True),
    Run(
        "repaired, two keys, two answers are lost",
        produce((*BOTH, (1, 2, 1)), replace(Load((0, 1, 1)), lost_answers=2)),
        slow=True,
    ),
    Run(
        "repaired, acks=1 there and back", produce(BACK_AND_FORTH, replace(TWO, acks_all=False, failovers=1)), slow=True
    ),
    Run("K501 the published producer, growing", produce(SPLIT, TWO, **PUBLISHED_PRODUCER), "I0"),
    Run("K501 the published producer, shrinking", produce(MERGE, TWO, **PUBLISHED_PRODUCER), "stuck"),
    Run("K502 re-hashed, but no barrier", produce(BOTH, TWO, barrier=False), "I3"),
    Run("K502 the same, below the base", produce(((3, 2),), Load((2, 2)), barrier=False), "I3"),
    Run("K503 the switch is not atomic", produce(BOTH, TWO, atomic_switch=False, **ASYNC), "I3"),
    Run("K304 retiring partitions are not fenced", produce(MERGE, TWO, fence_retiring=False, boundary="loose"), "I2"),
    Run("K407 a leader that has not adopted says where a key epoch ends", produce(BOTH, TWO, boundary="loose"), "I2"),
    Run(
        "K204 counts are compared, not generations",
        produce(((1, 2, 1),), replace(TWO, gives_up=True), check="count"),
        "I3",
    ),
    Run("K401 leaders remember the count per topic", produce(MERGE, TWO, memory="topic", **ASYNC), "I0"),
    Run(
        "K504 a batch of unknown outcome is re-hashed",
        produce(SPLIT, replace(TWO, lost_answers=1), duplicates_first=False, resolve_in_place=False),
        "I6",
    ),
    Run(
        "K403 generation checked before duplicates",
        produce(SPLIT, replace(TWO, lost_answers=1), duplicates_first=False),
        "I6",
    ),
    Run("K506 first batches in a pipeline", produce(((1, 2, 1),), TWO, first_batch_alone=False, **ASYNC), "I3"),
    Run("K507 the producer believes older metadata", produce(BOTH, TWO, monotone_view=False, **ASYNC), "I3"),
    Run(
        "K512 sealed partitions refuse markers",
        produce(MERGE, replace(TWO, transactional=True), sealed_take_markers=False),
        "stuck",
    ),
)


# -- groups


def deliver(
    scripts: Iterable[Script],
    records: int,
    rules: delivery.Rules | None = None,
    *,
    shapes: Callable[[Lineage, Produced], Iterable[Logs]] = lambda lineage, produced: [logs_of(lineage, produced)],
    crashes: int = 0,
    coordinator_failovers: int = 0,
) -> Explore:
    """Every way to spread two to `records` records over the generations of these scripts."""

    def instances() -> Iterator[Outcome]:
        for counts, hashes in scripts:
            lineage = Lineage(base_of(counts[0]), list(enumerate(counts)))
            for many in range(2, records + 1):
                for produced in spread(lineage, hashes, many):
                    for logs in shapes(lineage, produced):
                        model = Delivery(
                            lineage, logs, rules, crashes=crashes, coordinator_failovers=coordinator_failovers
                        )
                        yield explore(model)

    return instances


def tails(lineage: Lineage, produced: Produced) -> Iterator[Logs]:
    """The last record of each partition in turn is known to its old leader only."""
    logs = logs_of(lineage, produced)
    return (with_tail(logs, p, 1) for p, entries in enumerate(logs.entries) if entries)


def transactions(lineage: Lineage, produced: Produced) -> Iterator[Logs]:
    """All in one transaction, committed or aborted, whose markers come last."""
    return (in_transactions(lineage, produced, aborted=frozenset(aborted)) for aborted in ((), (0,)))


POSITIONS: Final = delivery.Rules(waits_for="position")
AS_PUBLISHED: Final = replace(POSITIONS, recursive=False, gate="published", reports="published")
DELIVERY: Final = (
    Run("repaired, one crash", deliver(ONE_KEY, 3, crashes=1)),
    Run("repaired, two crashes", deliver(ONE_KEY, 2, crashes=2)),
    Run("repaired, four records", deliver(ONE_KEY[:6], 4, crashes=1)),
    Run("repaired, five records, two crashes", deliver(ONE_KEY, 5, crashes=2), slow=True),
    Run("repaired, deep lineages", deliver(DEEP, 3, crashes=1), slow=True),
    Run("repaired, deep lineages, four records", deliver(DEEP, 4, crashes=1), slow=True),
    Run("repaired, two keys", deliver(TWO_KEYS, 3, crashes=1)),
    Run("repaired, below the base", deliver(BELOW_THE_BASE, 2, crashes=1)),
    Run("repaired, below the base, two crashes", deliver(BELOW_THE_BASE, 3, crashes=2), slow=True),
    Run("repaired, below the base, two keys", deliver(BELOW_THE_BASE_TWO_KEYS, 2, crashes=1)),
    Run("repaired, a tail that may be lost", deliver(ONE_KEY[:4], 2, shapes=tails, crashes=1)),
    Run("repaired, transactions", deliver(ONE_KEY, 2, shapes=transactions, crashes=1)),
    Run(
        "repaired, commits while gated",
        deliver(ONE_KEY, 3, replace(delivery.Rules(), commits_while_gated=True), crashes=1),
    ),
    Run("published, no fault", deliver(PUBLISHED, 3, AS_PUBLISHED), "I4", slow=True),
    Run("K606 published, no fault, deadlock", deliver((((1, 2, 1), (1,)),), 4, AS_PUBLISHED), "stuck"),
    Run("published, shrinking only", deliver(SHRINKING, 3, AS_PUBLISHED), slow=True),
    Run("published, an owner crashes", deliver(ONE_KEY[:1], 2, AS_PUBLISHED, crashes=1), "I4"),
    Run(
        "K707 merge targets wait for retiring partitions of the last step only",
        deliver(
            (((4, 2, 1), (3,)),),
            2,
            replace(POSITIONS, recursive=False, gate="published", retiring_of="the current ancestor"),
        ),
        "I4",
    ),
    Run("K601 not recursive", deliver((((1, 2, 4), (3,)),), 2, replace(POSITIONS, recursive=False)), "I4"),
    Run(
        "K601 not recursive, automatic commits",
        deliver((((1, 2, 4), (3,)),), 2, delivery.Rules(recursive=False, commits_while_gated=True)),
        "I4",
    ),
    Run("positions, no fault", deliver(ONE_KEY, 3, POSITIONS), slow=True),
    Run("K602 positions, an owner crashes", deliver(ONE_KEY[:3], 3, POSITIONS, crashes=1), "I4"),
    Run(
        "K605 a dead owner's position counts",
        deliver(ONE_KEY[:1], 2, replace(POSITIONS, positions_forgotten=False), crashes=1),
        "I4",
    ),
    Run(
        "K604 conditions outlive the coordinator",
        deliver(ONE_KEY[:2], 2, replace(POSITIONS, reports="published", reports_reset=False), coordinator_failovers=1),
        "stuck",
    ),
    Run(
        "K409 boundaries are kept when the leader changes",
        deliver(ONE_KEY[:2], 2, delivery.Rules(resolved_again=False), shapes=tails),
        "stuck",
    ),
    Run(
        "K406 a boundary is the last stable offset",
        deliver(ONE_KEY[:2], 2, delivery.Rules(end="last stable"), shapes=transactions),
        "I4",
    ),
)


# -- controllers


def resize(before: int, after: int, procedure: Procedure) -> Explore:
    """One resize by one controller and its successors."""
    return lambda: iter([explore(Resizing(before, after, procedure))])


def repaired_resizes(partitions: int, faults: int) -> Explore:
    """Every resize between one and so many partitions, with up to so many crashes, and as many elections."""

    def instances() -> Iterator[Outcome]:
        counts = range(1, partitions + 1)
        for base, before, after in itertools.product((1, 3, 5), counts, counts):
            if before != after:
                yield explore(Resizing(before, after, Procedure(crashes=faults, elections=faults), base=base))

    return instances


RESIZING: Final = (
    Run("repaired, two crashes and two elections", repaired_resizes(5, 2)),
    Run("repaired, up to eight partitions, three of each fault", repaired_resizes(8, 3), slow=True),
    Run("published 1 -> 4, no fault", resize(1, 4, Procedure("published"))),
    Run("K302 published 1 -> 4, a crash", resize(1, 4, Procedure("published", crashes=1)), "K302"),
    Run("published 4 -> 2, no fault", resize(4, 2, Procedure("published"))),
    Run(
        "K303 published 4 -> 2, a crash and an election",
        resize(4, 2, Procedure("published", crashes=1, elections=1)),
        "K303",
    ),
    Run("K305 published 4 -> 2, a crash", resize(4, 2, Procedure("published", crashes=1, bumps_again=False)), "K305"),
    Run(
        "K305 the same, counts without epochs",
        resize(4, 2, Procedure("published", crashes=1, bumps_again=False, leaders_learn_counts_alone=True)),
        "K303",
    ),
)

# -- producers without generations


def mark(rules: MarkingRules | None = None, *, resizes: int = 1, **faults: int) -> Explore:
    """A topic that becomes ordered while it is resized."""
    return lambda: iter([explore(Marking(rules or MarkingRules(), resizes=resizes, **faults))])


def verify(scripts: Iterable[tuple[int, ...]], hashes: tuple[int, ...], **defects: bool) -> Explore:
    """A stock producer whose keys are looked at."""
    return lambda: (explore(Verifying(counts, Load(hashes), **defects)) for counts in scripts)


LEGACY: Final = (
    Run("a topic becomes ordered, a controller dies, another writes", mark(crashes=1, others=1)),
    Run("the same, a leader is replaced", mark(crashes=1, replaced=1)),
    Run("the same, two resizes, and all of that", mark(resizes=2, crashes=1, replaced=1, others=1), slow=True),
    Run("the mark comes after the append", mark(MarkingRules(appended="at once")), "unmarked"),
    Run("leaders hear of the mark before it is written", mark(MarkingRules(told="before")), "unmarked"),
    Run("leaders of a new generation hear of the mark later", mark(MarkingRules(carried=False)), "outsider"),
    Run("a plan is written without the mark", mark(MarkingRules(kept=False)), "lost"),
    Run("keys are looked at", verify((*BOTH, (3, 2)), (1, 1))),
    Run("keys are looked at, there and back", verify((*BACK_AND_FORTH, (1, 2, 4)), (3, 3)), slow=True),
    Run("two keys are looked at", verify(BOTH, (1, 0, 1)), slow=True),
    Run("records of a key overtake one another", verify(BOTH, (1, 1), one_by_one=False), "I3"),
    Run("keys are looked at by a generation that has ended", verify(BOTH, (1, 1), waits=False), "I0"),
)


RUNS: Final = {
    "production": PRODUCTION,
    "delivery": DELIVERY,
    "assigning": ASSIGNING,
    "resizing": RESIZING,
    "legacy": LEGACY,
    "leases": LEASES,
    "sharing": SHARING,
}
