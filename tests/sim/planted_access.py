"""Planted bugs of authorization; see `planted`."""

from __future__ import annotations

from typing import Any

from anabranch.broker.authorization.authorizer import Authorizer
from tests.sim.planted import Planter, plant

AIM = "a client loses a right that it uses"


@plant("a client keeps a right that was taken away", aim=AIM)
def decisions_are_kept(planter: Planter) -> None:
    def replace(authorizer: Any, pattern: Any, acls: Any) -> None:
        known = dict(authorizer._decided)
        original(authorizer, pattern, acls)
        authorizer._decided.update(known)

    original = planter.replace(Authorizer, "replace", replace)


@plant("a client that was refused stays refused", aim=AIM)
def refusals_are_kept(planter: Planter) -> None:
    def replace(authorizer: Any, pattern: Any, acls: Any) -> None:
        refused = {one: decision for one, decision in authorizer._decided.items() if not decision}
        original(authorizer, pattern, acls)
        authorizer._decided.update(refused)

    original = planter.replace(Authorizer, "replace", replace)
