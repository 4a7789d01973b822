"""The runs of `leases` and `sharing`: members of groups that are slow, frozen, dead or replaced."""

from __future__ import annotations

from typing import Any, Final

from tests.model.explorer import explore
from tests.model.leases import Faults as LeaseFaults
from tests.model.leases import Leases
from tests.model.leases import Rules as LeaseRules
from tests.model.run import Explore, Run
from tests.model.sharing import ACCEPT, Sharing
from tests.model.sharing import Faults as SharingFaults
from tests.model.sharing import Rules as SharingRules

# -- leases


def lease(rules: LeaseRules | None = None, *, expiries: int = 1, **more: Any) -> Explore:
    """A member and its replacement; what is not a fault is the model's own."""
    faults = LeaseFaults(expiries, **{name: more.pop(name) for name in LeaseFaults._fields if name in more})
    return lambda: iter([explore(Leases(rules, faults=faults, **more))])


LEASES: Final = (
    Run("a member and its replacement", lease(session=1)),
    Run("longer sessions", lease(session=2), slow=True),
    Run("a member that is replaced returns", lease(session=1, expiries=2), slow=True),
    Run("a message is lost", lease(session=1, losses=1), slow=True),
    Run("a member dies", lease(session=1, deaths=1), slow=True),
    Run("the group moves to another coordinator", lease(session=1, moves=1), slow=True),
    Run("the coordinator announces no session", lease(session=2, announces=False), slow=True),
    Run("sessions become shorter", lease(session=2, changed=1, changes=1, records=1, strict=True), slow=True),
    Run(
        "the same, and the group moves",
        lease(session=2, changed=1, changes=1, moves=1, records=1, strict=True),
        slow=True,
    ),
    Run("the lease begins with the response", lease(LeaseRules(counted_from="arrival"), session=1), "order"),
    Run("the lease is as long as the member's own setting", lease(LeaseRules(believes="itself"), session=1), "order"),
    Run("a member does not look at its lease", lease(LeaseRules(looks=False), session=1), "order"),
    Run(
        "no session is announced, no question asked", lease(LeaseRules(asks=False), session=2, announces=False), "order"
    ),
    Run("no session is announced, and it lasts one heartbeat", lease(session=1, announces=False), "order"),
    Run("commits need no member", lease(LeaseRules(fence="none"), session=1), "again"),
    Run("commits need a member, but not its epoch", lease(LeaseRules(fence="member"), session=1, expiries=2), "again"),
    Run("a dead member's session does not end", lease(LeaseRules(sessions_end=False), session=1, deaths=1), "stuck"),
    Run(
        "a lower setting shortens a session",
        lease(LeaseRules(extends=False), session=2, changed=1, changes=1),
        "order",
        slow=True,
    ),
    Run(
        "a new coordinator does not know what was announced",
        lease(LeaseRules(restores="own"), session=2, changed=1, changes=1, moves=1),
        "order",
        slow=True,
    ),
)


# -- share groups


def share(rules: SharingRules | None = None, faults: SharingFaults | None = None, **more: Any) -> Explore:
    """Two members of a share group."""
    return lambda: iter([explore(Sharing(rules, faults=faults, **more))])


ONE_RECORD: Final = ((0, 0),)
SHARING: Final = (
    Run("two records", share()),
    Run("a record, any two faults", share(None, SharingFaults(1, 0, 1, 1), extents=ONE_RECORD)),
    Run("a batch of two records; one always fails", share(extents=((0, 1),), at_once=2, isolates=True, limit=3)),
    Run("a record, a member dies, another freezes", share(None, SharingFaults(1, 1, 0, 1), extents=ONE_RECORD)),
    Run("a record, all faults", share(None, SharingFaults(1, 1, 1, 1), extents=ONE_RECORD, lock=2, limit=3), slow=True),
    Run("a record, two leaders change", share(None, SharingFaults(1, 0, 1, 2), extents=ONE_RECORD), slow=True),
    Run("a record, two writes fail", share(None, SharingFaults(1, 0, 2, 1), extents=ONE_RECORD), slow=True),
    Run("two records are accepted, another leader", share(None, SharingFaults(leaders=1), types=(ACCEPT,)), slow=True),
    Run("two records are accepted, a write fails", share(None, SharingFaults(failures=1), types=(ACCEPT,)), slow=True),
    Run("a late acknowledgement counts", share(SharingRules(checks_holder=False), extents=ONE_RECORD), "late"),
    Run("locks do not expire", share(SharingRules(locks_expire=False), SharingFaults(1), extents=ONE_RECORD), "stuck"),
    Run("the start moves over a record in flight", share(SharingRules(start="last")), "lost"),
    Run("deliveries are not limited", share(SharingRules(limited=False), extents=ONE_RECORD), "limit"),
    Run(
        "a leader gets the state before the last write",
        share(SharingRules(restores="before"), SharingFaults(leaders=1), extents=ONE_RECORD),
        "twice",
    ),
    Run(
        "former leaders are not fenced",
        share(SharingRules(fences=False), SharingFaults(leaders=1), extents=ONE_RECORD),
        "twice",
    ),
    Run(
        "a write arrives after a later one of its leader",
        share(SharingRules(numbers=False), SharingFaults(failures=1, leaders=1), types=(ACCEPT,)),
        "twice",
        slow=True,
    ),
)
