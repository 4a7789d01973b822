"""Share groups: the smallest violation of each checker, and its near miss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from anabranch.chaos.checkers.shares import CHECKERS, DEPOSED_S
from anabranch.chaos.history import History
from anabranch.chaos.share_events import Handed, Judged, LetGo, Locked, Settled, StartKept
from tests.chaos.checkers.story import P, Story

LIMIT = 3


def history(*events: Any, stored: Iterable[str] = ()) -> History:
    story = Story()
    for offset, value in enumerate(stored):
        story.send(value, P, offset)
    found = story.history
    found.shares.delivery_limit = LIMIT
    found.shares.topics.add(P[0])
    for one in events:
        rows: list[Any] = {
            Handed: found.shares.handed,
            Judged: found.shares.judged,
            StartKept: found.shares.starts,
        }.get(type(one), found.shares.inside)
        rows.append(one)
    return found


def handed(order: int, *, node: int = 1, count: int = 1, at_s: float = 0.0) -> Handed:
    return Handed(order + 1, order, at_s, "a", node, P, 0, count)


def judged(order: int, verdict: Any = "accept", outcome: Any = "ok") -> Judged:
    return Judged(order, "b", 1, P, 0, verdict, outcome, order + 1, 0.0)


def locked(order: int, member: str, *, epoch: int = 1, count: int = 1, leader: str = "node-1.1") -> Locked:
    return Locked(order, leader, P, epoch, 0, member, count)


def settled(order: int, *, done: bool, epoch: int = 1, count: int = 1) -> Settled:
    return Settled(order, "node-1.1", P, epoch, 0, 0, done, count)


def start(order: int, offset: int, *, epoch: int = 1, keeper: int | None = 1) -> StartKept:
    return StartKept(order, P, epoch, offset, keeper)


CASES: list[tuple[str, History, History]] = [
    ("A41", history(stored=["v"]), history(judged(1), stored=["v"])),
    ("A41", history(judged(1, "release"), stored=["v"]), history(handed(1, count=LIMIT), stored=["v"])),
    ("A41", history(judged(1, "accept", "fail"), stored=["v"]), history(judged(1, "reject", "info"), stored=["v"])),
    ("A42", history(judged(1), handed(3)), history(judged(1), handed(1))),
    ("A42", history(judged(1), handed(3)), history(judged(1, "accept", "info"), handed(3))),
    ("A42", history(judged(1), handed(3, node=2, at_s=DEPOSED_S + 1)), history(judged(1), handed(3, node=2, at_s=1.0))),
    ("A43", history(handed(1, count=LIMIT + 1)), history(handed(1, count=LIMIT))),
    ("A44", history(locked(1, "a"), locked(2, "b")), history(locked(1, "a"), settled(2, done=False), locked(3, "b"))),
    ("A44", history(locked(1, "a"), locked(2, "b")), history(locked(1, "a"), locked(2, "b", epoch=2))),
    (
        "A44",
        history(locked(1, "a"), LetGo(2, "node-1.1", "c"), locked(3, "b")),
        history(locked(1, "a"), LetGo(2, "node-1.1", "a"), locked(3, "b")),
    ),
    (
        "A45",
        history(settled(1, done=True, epoch=2), locked(2, "a", epoch=3)),
        history(settled(1, done=True, epoch=2), locked(2, "a", epoch=1)),
    ),
    (
        "A46",
        history(locked(1, "a"), settled(2, done=False), locked(3, "a")),
        history(locked(1, "a"), settled(2, done=False), locked(3, "a", count=2)),
    ),
    ("A46", history(locked(1, "a", count=2)), history(locked(1, "a"), locked(2, "a", epoch=2))),
    ("A47", history(start(1, 5), start(2, 4)), history(start(1, 5), start(2, 5))),
    ("A47", history(start(1, 5), start(2, 4)), history(start(1, 5, keeper=2), start(2, 4, keeper=1))),
    (
        "A47",
        history(start(1, 5, epoch=2), start(2, 4, epoch=2, keeper=None)),
        history(start(1, 5, epoch=2), start(2, 4, epoch=1, keeper=None)),
    ),
]


@pytest.mark.parametrize(("name", "bad", "near_miss"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])
def test_checker_flags_bad_history_and_not_the_near_miss(name: str, bad: History, near_miss: History) -> None:
    (check,) = (check for label, check in CHECKERS.items() if label.startswith(f"{name} "))
    assert list(check(bad))
    assert not list(check(near_miss))
