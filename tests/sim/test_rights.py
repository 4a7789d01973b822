"""While controllers die, no broker serves a client without permission; planted bugs are noticed.

Method: schedules of `rights`, as they are and with one bug in the product each. `python -m tests.sim.rights` runs many.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.broker.authorization import acl_store
from anabranch.broker.authorization.acl_store import AclWatch
from anabranch.broker.authorization.authorizer import Authorizer
from anabranch.broker.dispatch import auth_helper
from anabranch.broker.quotas.connection_quotas import AdmissionQueue
from anabranch.controller.zk.session import Set
from anabranch.protocol.acls import Acl, Operation, Permission, ResourcePattern, ResourceType
from tests.sim.rights import allowed, play

SCHEDULES = 3
LIMIT = 24


def test_unauthorized_requests_are_never_served() -> None:
    fired: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        _, violations, happened, _ = play(seed)
        assert violations == [], f"repeat with: python -m tests.sim.rights {seed}"
        fired += happened
    assert min(fired["served"], fired["refused"], fired["judged for sure"]) > 100
    assert fired["the controller is hit"] > 5, "it was not that easy"


def test_schedule_is_repeatable() -> None:
    assert play(7) == play(7)


def test_authorization_model_follows_kafka() -> None:
    def one(operation: Operation, permission: Permission, host: str = "h") -> Acl:
        return Acl("User:ANONYMOUS", host, operation, permission)

    read, describe = Operation.READ, Operation.DESCRIBE
    allow, deny = Permission.ALLOW, Permission.DENY
    assert allowed(frozenset(), "h", read)
    assert not allowed(frozenset({one(read, allow, "other")}), "h", read)
    assert allowed(frozenset({one(read, allow), one(read, deny)}), "h", describe)
    assert not allowed(frozenset({one(read, allow), one(read, deny)}), "h", read)
    assert not allowed(frozenset({one(describe, allow)}), "h", read)


def caught() -> list[str]:
    """The violations of the first schedule that has any."""
    for seed in range(LIMIT):
        _, violations, _, _ = play(seed)
        if violations:
            return violations
    return []


Bug = Callable[[pytest.MonkeyPatch], None]


def decisions_are_kept(patch: pytest.MonkeyPatch) -> None:
    original = Authorizer.replace

    def replace(authorizer: Authorizer, pattern: ResourcePattern, acls: Any) -> None:
        known = dict(authorizer._decided)
        original(authorizer, pattern, acls)
        authorizer._decided.update(known)

    patch.setattr(Authorizer, "replace", replace)


def announcements_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    async def announced(watch: AclWatch, path: str, data: bytes) -> None:
        return

    patch.setattr(AclWatch, "_on_change", announced)


def a_new_session_reads_nothing(patch: pytest.MonkeyPatch) -> None:
    original = AclWatch._read_all

    async def read_all(watch: AclWatch, session: Any) -> Any:
        known = watch._authorizer.acls
        return dict(known) if known else await original(watch, session)

    patch.setattr(AclWatch, "_read_all", read_all)


def changes_overwrite_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acl_store, "Set", lambda path, data, version: Set(path, data, -1))


def a_change_is_in_force_later(patch: pytest.MonkeyPatch) -> None:
    original = AclWatch.read_again

    async def read_again(watch: AclWatch, pattern: ResourcePattern) -> None:
        by_request = any(frame.function == "_change" for frame in inspect.stack(0)[:4])
        if not by_request:
            await original(watch, pattern)

    patch.setattr(AclWatch, "read_again", read_again)


def a_handler_does_not_ask(patch: pytest.MonkeyPatch) -> None:
    original = auth_helper.is_authorized

    def may(ctx: Any, operation: Operation, resource_type: ResourceType, *name: str) -> bool:
        return operation is Operation.READ or original(ctx, operation, resource_type, *name)

    patch.setattr("anabranch.broker.handlers.fetch.is_authorized", may)


def the_door_is_open_at_once(patch: pytest.MonkeyPatch) -> None:
    original = AdmissionQueue.__init__
    patch.setattr(AdmissionQueue, "__init__", lambda entrance, quotas, is_open: original(entrance, quotas))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("bug", "seen_as"),
    [
        (decisions_are_kept, "and knew states"),
        (announcements_are_not_heard, "all go by the same lists"),
        (a_new_session_reads_nothing, "all go by the same lists"),
        (changes_overwrite_each_other, "nobody asks that"),
        (a_change_is_in_force_later, "and knew states"),
        (a_handler_does_not_ask, "served READ"),
        (the_door_is_open_at_once, "refuse"),
    ],
)
def test_authorization_bug_is_detected(monkeypatch: pytest.MonkeyPatch, bug: Bug, seen_as: str) -> None:
    bug(monkeypatch)
    found = caught()
    assert any(seen_as in line for line in found), found[:5]
