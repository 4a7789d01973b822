"""The runs of `assigning`: the effect of the broker's gates and each of their rules.

Numbers of traps are those of the design: each is a rule without which an instance goes wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import base_of
from tests.model import assigning
from tests.model.assigning import Assigning, Faults, Group
from tests.model.delivery import logs_of, spread
from tests.model.explorer import Outcome, explore
from tests.model.run import Explore, Run, Script


def assign(
    scripts: Iterable[Script],
    records: int,
    group: Group | None = None,
    *,
    faults: Faults | None = None,
    shape: Literal["as produced", "ends in nothing", "expired", "returned"] = "as produced",
    **rules: object,
) -> Explore:
    """Every way to spread two to `records` records; what the broker assigns to members without gates."""

    def instances() -> Iterator[Outcome]:
        for counts, hashes in scripts:
            lineage = Lineage(base_of(counts[0]), list(enumerate(counts)))
            for many in range(2, records + 1):
                for produced in spread(lineage, hashes, many):
                    logs = logs_of(lineage, produced)
                    starts: tuple[int, ...] = ()
                    known: tuple[int, ...] = ()
                    if shape == "ends in nothing":
                        logs = assigning.with_nothing(lineage, logs)
                    elif shape == "expired":
                        starts = assigning.expired(lineage, logs)
                    elif shape == "returned":
                        starts, known = assigning.returned(logs)
                    held = assigning.Rules(**rules)  # type: ignore[arg-type]
                    yield explore(
                        Assigning(lineage, logs, held, group=group, faults=faults, starts=starts, committed=known)
                    )

    return instances


GROWING: Final[tuple[Script, ...]] = (((1, 2), (1,)), ((1, 2, 4), (3,)), ((1, 4), (3,)), ((1, 2, 4), (1, 3)))
ONE_SPLIT, TWO_SPLITS = GROWING[:1], GROWING[1:2]
ONE_MERGE: Final[tuple[Script, ...]] = (((2, 1), (1,)),)
THERE_AND_BACK: Final[tuple[Script, ...]] = (((1, 2, 1), (1,)),)
BELOW: Final[tuple[Script, ...]] = (((1, 3, 4, 6), (5,)),)
CRASH: Final = Faults(crashes=1)
FROM_THE_START: Final = Group("late", "earliest")
AT_THE_END: Final = Group("late", "latest")
ASSIGNING: Final = (
    Run("splits", assign(GROWING[:2], 2, faults=Faults(1, 1))),
    Run("splits, two keys", assign(GROWING[2:], 2, faults=Faults(1, 1)), slow=True),
    Run("splits, three records", assign(GROWING[:2], 3, faults=CRASH)),
    Run("splits, three records, and everything fails", assign(ONE_SPLIT, 3, faults=Faults(2, 1, 1)), slow=True),
    Run("splits in odd steps", assign(BELOW, 2)),
    Run("splits in odd steps, a crash", assign(BELOW, 2, faults=CRASH), slow=True),
    Run("splits, static members leave", assign(GROWING[:2], 2, faults=Faults(crashes=1, leaves=1))),
    Run("splits, a member goes back", assign(ONE_SPLIT, 2, faults=Faults(crashes=1, leaves=1, rewinds=1))),
    Run(
        "splits twice, a member goes back",
        assign(TWO_SPLITS, 2, faults=Faults(crashes=1, leaves=1, rewinds=1)),
        slow=True,
    ),
    Run("splits, a group from the start", assign(GROWING[:3], 2, FROM_THE_START, faults=CRASH)),
    Run(
        "splits, a group from the start, lost commits",
        assign(GROWING[:3], 2, FROM_THE_START, faults=Faults(1, 1)),
        slow=True,
    ),
    Run(
        "splits, a group at the end that commits where it begins", assign(GROWING[:3], 2, Group("late", "latest", True))
    ),
    Run("splits, key epochs that end in nothing", assign(GROWING[:3], 2, faults=CRASH, shape="ends in nothing")),
    Run("splits, first key epochs have expired", assign(GROWING[:3], 2, FROM_THE_START, faults=CRASH, shape="expired")),
    Run("splits, an index with an old commit", assign(ONE_SPLIT, 2, faults=CRASH, shape="returned")),
    Run(
        "splits, processed and then committed",
        assign(GROWING[:2], 2, faults=CRASH, counts="processed", commits="processed"),
    ),
    Run("the record in hand is committed", assign(ONE_SPLIT, 2, counts="processed"), "I4"),
    Run("K601 not recursive", assign(TWO_SPLITS, 2, recursive=False), "I4"),
    Run("trap 1: children are begun by the reset policy", assign(ONE_SPLIT, 2, starts=False), "lost"),
    Run("trap 1: old commits of an index are believed", assign(ONE_SPLIT, 2, shape="returned", starts=False), "lost"),
    Run(
        "trap 2: all below the cut has to be committed",
        assign(ONE_SPLIT, 2, shape="ends in nothing", end="cut"),
        "stuck",
    ),
    Run(
        "trap 2: what has expired is waited for",
        assign(ONE_SPLIT, 2, FROM_THE_START, shape="expired", expired_is_done=False),
        "stuck",
    ),
    Run("trap 3: a group at the end of an idle parent", assign(ONE_SPLIT, 2, AT_THE_END), "stuck"),
    Run("trap 3: the escape lets it go on", assign(ONE_SPLIT, 2, AT_THE_END, uncommitted="pass")),
    Run("trap 3: the escape has a price", assign(ONE_SPLIT, 2, FROM_THE_START, uncommitted="pass"), "I4"),
    Run("trap 4: a commit counts before it is stable", assign(ONE_SPLIT, 2, faults=Faults(1, 1), stable=False), "I4"),
    Run(
        "trap 5: once open, open for ever",
        assign(ONE_SPLIT, 2, faults=Faults(crashes=1, rewinds=1), again=False),
        "I4",
    ),
    Run(
        "trap 6: partitions are known before their lineage",
        assign(ONE_SPLIT, 2, Group("before", "earliest"), lineage_first=False),
        "I4",
    ),
    Run("trap 7: zombies may commit", assign(ONE_SPLIT, 2, faults=CRASH, outsiders_refused=False), "I4"),
    Run(
        "stored assignments are handed out as they are",
        assign(ONE_SPLIT, 2, faults=Faults(leaves=1, rewinds=1), stored_filtered=False),
        "I4",
    ),
    Run("merges, read on", assign(ONE_MERGE, 2), "I4"),
    Run("merges, merge targets withheld once a coordinator knows", assign(ONE_MERGE, 2, merges="withheld"), "I4"),
    Run("there and back, merge targets withheld", assign(THERE_AND_BACK, 3, merges="withheld"), "stuck"),
    Run("merges, views", assign(ONE_MERGE, 3, merges="views", faults=CRASH)),
    Run("there and back, views", assign(THERE_AND_BACK, 3, merges="views", faults=CRASH)),
    Run(
        "there and back, views, from the start",
        assign(THERE_AND_BACK, 2, FROM_THE_START, merges="views", faults=Faults(1, 1)),
    ),
    Run(
        "up and down, views",
        assign((((1, 2, 4, 1), (3,)), ((4, 2, 1), (3,))), 2, merges="views", faults=CRASH),
        slow=True,
    ),
)
