"""The large set: the rules hold at larger bounds than those of `runs`, and defects are found there, too.

`python -m tests.model --large` explores it in half an hour. No test does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.model.assigning import Faults
from tests.model.assigning_runs import FROM_THE_START, GROWING, TWO_SPLITS, assign
from tests.model.deleting import NEITHER, OPEN, SKIP, Deleting
from tests.model.delivery import Rules as DeliveryRules
from tests.model.explorer import explore
from tests.model.leases import Rules as LeaseRules
from tests.model.member_runs import ONE_RECORD, lease, share
from tests.model.production import Load
from tests.model.resizing import Procedure
from tests.model.run import Explore, Run
from tests.model.runs import (
    ASYNC,
    BELOW_THE_BASE,
    DEEP,
    ONE_KEY,
    POSITIONS,
    deliver,
    mark,
    produce,
    repaired_resizes,
    resize,
    tails,
    transactions,
    verify,
)
from tests.model.sharing import ACCEPT
from tests.model.sharing import Faults as SharingFaults
from tests.model.sharing import Rules as SharingRules

DOUBLED: Final = ((1, 2, 4, 8),)
TWICE_BACK: Final = ((1, 2, 1, 2),)
THRICE: Final = ((1, 2, 1, 2, 1),)
LOST_TAIL: Final = Load((1, 1, 1), acks_all=False, failovers=1)
"""Without a resize, and as in Kafka: only acks=all keeps the order of a producer with several batches on their way."""
UP_AND_DOWN: Final = ((2, 4, 1),)


def delete(scripts: Iterable[tuple[int, ...]], records: int, rule: str = SKIP, **faults: int) -> Explore:
    """A group whose records are deleted behind closed gates."""
    return lambda: (explore(Deleting(counts, records, rule=rule, **faults)) for counts in scripts)


PRODUCTION: Final = (
    Run("three records, twice back, two answers are lost", produce(TWICE_BACK, Load((1, 1, 1), lost_answers=2))),
    Run("four records of two keys, there and back", produce(((1, 2, 1),), Load((0, 1, 1, 0), lost_answers=1))),
    Run(
        "acks=1, two records, twice back, two leaders fail",
        produce(TWICE_BACK, Load((1, 1), acks_all=False, failovers=2)),
    ),
    Run("acks=1, three records: a leader without state takes any", produce(((1,),), LOST_TAIL), "I3"),
    Run("three records merged into one, asynchronous", produce(UP_AND_DOWN, Load((3, 3, 3)), **ASYNC)),
    Run(
        "a transaction of three records, up and down",
        produce(UP_AND_DOWN, Load((3, 3, 3), transactional=True, lost_answers=1)),
    ),
    Run("a key that moves three times, an answer is lost", produce(DOUBLED, Load((7, 7, 7), lost_answers=1))),
    Run("four records, twice back, two answers are lost", produce(TWICE_BACK, Load((1, 1, 1, 1), lost_answers=2))),
    Run("four records merged into one, an answer is lost", produce(UP_AND_DOWN, Load((3, 3, 3, 3), lost_answers=1))),
    Run("four records of a key that moves three times", produce(DOUBLED, Load((7, 7, 7, 7)))),
    Run("four records of two keys, twice back, two answers", produce(TWICE_BACK, Load((0, 1, 0, 1), lost_answers=2))),
    Run("four records, three times back, an answer is lost", produce(THRICE, Load((1, 1, 1, 1), lost_answers=1))),
    Run("five records, twice back, two answers are lost", produce(TWICE_BACK, Load((1, 1, 1, 1, 1), lost_answers=2))),
    Run("five records merged into one, an answer is lost", produce(UP_AND_DOWN, Load((3, 3, 3, 3, 3), lost_answers=1))),
    Run("five records of a key that moves three times", produce(DOUBLED, Load((7, 7, 7, 7, 7)))),
    Run("no barrier", produce(DOUBLED, Load((7, 7, 7), lost_answers=1), barrier=False), "I3"),
    Run(
        "generation checked before duplicates",
        produce(DOUBLED, Load((7, 7), lost_answers=1), duplicates_first=False),
        "I6",
    ),
)
DELIVERY: Final = (
    Run("six records, two crashes", deliver(ONE_KEY, 6, crashes=2)),
    Run("deep lineages, four records, two crashes", deliver(DEEP, 4, crashes=2)),
    Run("below the base, four records, two crashes", deliver(BELOW_THE_BASE, 4, crashes=2)),
    Run("three records and a tail, two crashes", deliver(ONE_KEY, 3, shapes=tails, crashes=2)),
    Run("three records in transactions, two crashes", deliver(ONE_KEY, 3, shapes=transactions, crashes=2)),
    Run("positions, an owner crashes", deliver(DEEP[:1], 2, POSITIONS, crashes=1), "I4"),
    Run("boundaries are kept", deliver(ONE_KEY[:4], 3, DeliveryRules(resolved_again=False), shapes=tails), "stuck"),
)
ASSIGNING: Final = (
    Run("splits, three records, and everything fails", assign(GROWING[:3], 3, faults=Faults(2, 1, 1))),
    Run("splits, two keys, three records, two crashes", assign(GROWING[3:], 3, faults=Faults(2, 1))),
    Run("splits twice, three records, a member goes back", assign(TWO_SPLITS, 3, faults=Faults(1, 1, 1, 1))),
    Run("a group from the start, three records", assign(GROWING[:3], 3, FROM_THE_START, faults=Faults(2, 1))),
    Run("not recursive", assign(TWO_SPLITS, 3, faults=Faults(2, 1), recursive=False), "I4"),
)
RESIZING: Final = (
    Run("up to ten partitions, three of each fault", repaired_resizes(10, 3)),
    Run("up to six partitions, five of each fault", repaired_resizes(6, 5)),
    Run("published 8 -> 3", resize(8, 3, Procedure("published", crashes=2, elections=2)), "K303"),
)
LEGACY: Final = (
    Run("a topic becomes ordered, two resizes, two controllers die", mark(resizes=2, crashes=2, replaced=2, others=1)),
    Run("the same, three resizes", mark(resizes=3, crashes=2, replaced=1, others=1)),
    Run("keys are looked at, three resizes, three records", verify(((1, 2, 4, 8), (1, 2, 1, 2)), (7, 7, 7))),
    Run("two keys are looked at, there and back, four records", verify(((1, 2, 1),), (1, 0, 1, 0))),
    Run("records of a key overtake", verify(((1, 2, 4, 8),), (7, 7, 7), one_by_one=False), "I3"),
)
LEASES: Final = (
    Run("a session of two intervals, a message is lost", lease(session=2, losses=1)),
    Run("the same, and a member dies", lease(session=2, losses=1, deaths=1)),
    Run("a session of two intervals, two expire", lease(session=2, expiries=2)),
    Run("the same, and a message is lost", lease(session=2, expiries=2, losses=1)),
    Run("all faults", lease(session=2, losses=1, deaths=1, moves=1)),
    Run("two messages are lost, the group moves", lease(session=1, losses=2, moves=1)),
    Run("a session of three intervals", lease(session=3)),
    Run("a member dies, and the group moves twice", lease(session=1, deaths=1, moves=2)),
    Run("commits need no epoch", lease(LeaseRules(fence="member"), session=2, expiries=2), "again"),
    Run("the lease begins with the response", lease(LeaseRules(counted_from="arrival"), session=3), "order"),
)
SHARING: Final = (
    Run("a record, all faults, two leaders", share(None, SharingFaults(1, 1, 1, 2), extents=ONE_RECORD)),
    Run("a record, two writes fail, two leaders", share(None, SharingFaults(1, 0, 2, 2), extents=ONE_RECORD)),
    Run("two records, another leader", share(None, SharingFaults(leaders=1))),
    Run("two records, a write fails", share(None, SharingFaults(failures=1))),
    Run("two records, a member freezes, another dies", share(None, SharingFaults(1, 1))),
    Run("three records are accepted", share(types=(ACCEPT,), extents=((0, 0), (1, 1), (2, 2)))),
    Run("former leaders are not fenced", share(SharingRules(fences=False), SharingFaults(1, 0, 1, 1)), "twice"),
    Run("locks do not expire", share(SharingRules(locks_expire=False), SharingFaults(1)), "stuck"),
)
DELETING: Final = (
    Run("there and back, two records", delete(((1, 2, 1),), 2, deletions=2, leader_changes=2)),
    Run("two splits", delete(((1, 2, 4),), 1, deletions=2, leader_changes=1)),
    Run("a split and a merge, twice", delete(((1, 2, 1, 2), (2, 1, 2, 1)), 1, deletions=2, leader_changes=2)),
    Run("deleted records are kept", delete(((1, 2, 1, 2),), 1, NEITHER), "stuck"),
    Run("gates open by log starts", delete(((1, 2, 4),), 1, OPEN), "order"),
)
LARGE: Final = {
    "production": PRODUCTION,
    "delivery": DELIVERY,
    "assigning": ASSIGNING,
    "resizing": RESIZING,
    "legacy": LEGACY,
    "leases": LEASES,
    "sharing": SHARING,
    "deleting": DELETING,
}
