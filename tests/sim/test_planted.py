"""Planted bugs are noticed: the quick ones here; `python -m tests.sim --planted` tries all."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, Final

import pytest

from anabranch.broker.coordinators.transactions import transaction_requests
from tests.sim.aims import AIMS
from tests.sim.defects import DEFECTS
from tests.sim.fitting import Misfit
from tests.sim.planted import AIMED_AT, PLANTS, Planter, catch, planted
from tests.sim.scenarios import SCENARIOS, Scenario
from tests.sim.schedule import Schedule

ROOT: Final = Path(__file__).parents[2]
PLANTERS: Final = {plant.__module__ for plant in [*PLANTS.values(), *(one.plant for one in DEFECTS.values())]}
SOURCES: Final = [
    path
    for one in ("protocol", "clients", "broker", "controller", "chaos", "src")
    for path in (ROOT / one).rglob("*.py")
]


LIKELY: Final = {
    "gates are always open": 2,
    "boundaries are crossed without a flush": 2,
    "transactions: their offsets are kept in memory only": 8,
}
"""The seeds that caught a bug last: tried first."""


@pytest.mark.costly
@pytest.mark.parametrize(
    ("bug", "checkers"),
    [
        ("acknowledge before replication", ("C13", "A1")),
        ("consumers read above the high watermark", ("C14", "A1")),
        ("an election keeps the leader epoch", ("C6",)),
        ("generation of a batch not checked", ("B3",)),
        ("gates are always open", ("B1", "B2", "A33")),  # or a copier was the first to read too early
        ("boundaries are crossed without a flush", ("B12",)),
        ("transactions: open ones do not hold readers back", ("A27", "A28")),
        ("transactions: their offsets are kept in memory only", ("A29", "A31", "L1")),
    ],
)
def test_planted_bug_is_caught_by_checker_of_its_rule(bug: str, checkers: tuple[str, ...]) -> None:
    caught = catch(bug, limit=60, first_seed=LIKELY.get(bug, 0))
    assert caught.found
    assert {one.split()[0] for one in caught.checkers} & set(checkers), caught.detail


def test_escaped_bug_reports_whether_its_aim_occurred_and_its_code_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An aim that no longer occurs, and replaced code that is no longer called."""

    def harmless(planter: Planter) -> None:
        original = planter.replace(transaction_requests, "end", lambda *row, **options: original(*row, **options))

    monkeypatch.setitem(PLANTS, "harmless", harmless)
    monkeypatch.setitem(AIMED_AT, "harmless", "an EndTxn is late")
    assert catch("harmless", limit=2).verdict == "NOT CAUGHT: its aim came about in 2 of them, its code was called in 2"

    async def nothing_happens(schedule: Schedule) -> bool:
        await asyncio.sleep(10)
        return False

    rotten = dataclasses.replace(AIMS["a session ends while a topic is made"], story=nothing_happens)
    schedule = Scenario(partial(Schedule, aim=rotten), lambda fired, schedules: [])
    monkeypatch.setitem(SCENARIOS, "an EndTxn is late", schedule)
    assert catch("harmless", limit=1).verdict == "NOT CAUGHT: its aim came about in 0 of them, its code was called in 0"


def _product() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("anabranch."):
            found[name] = dict(vars(module))
            for one in vars(module).values():
                if isinstance(one, type) and one.__module__ == name:
                    found[f"{name}.{one.__qualname__}"] = dict(vars(one))
    return found


def test_every_bug_fits_its_target_and_is_removed() -> None:
    """`Planter.replace` compares signatures; here each bug is planted once."""
    misfits = []
    for bug in [*PLANTS, *DEFECTS]:
        try:
            with planted(bug):
                pass
        except (Misfit, AttributeError, KeyError, ImportError) as error:
            misfits.append(f"{bug}: {error!r}")
    assert not misfits
    before = _product()  # all that they import is there by now
    for bug in [*PLANTS, *DEFECTS]:
        with planted(bug):
            pass
    assert _product() == before
    left = [
        place for place, names in before.items() for one in names.values() if getattr(one, "__module__", "") in PLANTERS
    ]
    assert not left, "what was imported while a bug was planted keeps it for ever"


def test_names_used_by_bugs_exist_in_product() -> None:
    """A renamed attribute would raise AttributeError, which looks like a found bug."""
    known = set(dir(builtins)) | {"collections"}
    for path in SOURCES:
        known.add(path.stem)
        known.update(re.findall(r"\w+", path.read_text("utf-8")))
    for bug, plant in {**PLANTS, **{name: one.plant for name, one in DEFECTS.items()}}.items():
        own = set(plant.__globals__)
        names = {part for name in _names_in(plant.__code__) if name not in own for part in name.split(".")}
        assert not {one for one in names if not one.startswith("__")} - known - own, bug


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names_in(one)
