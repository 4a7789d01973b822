"""Planted bugs: each breaks one rule of the product, and simulation has to notice it.

A planted bug replaces functions of the product from outside; nothing in the product knows of it. `catch` runs
schedules until one is judged guilty, and says after how many and by which checker. If none is, it says what may have
become of the bug: that the aim's story does not come about any more, or that nobody calls what was replaced.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from tests.sim.fitting import check_fit

PLANTS: Final[dict[str, Callable[[Planter], None]]] = {}
AIMED_AT: Final[dict[str, str]] = {}
"""The aim that shows a bug where random schedules would take a thousand and more."""


@dataclass(frozen=True)
class Caught:
    """What became of a planted bug."""

    name: str
    schedules: int
    checker: str
    detail: str
    checkers: frozenset[str] = frozenset()
    """All that noticed it in that schedule."""
    aimed: int = 0
    """In how many of the schedules the story of its aim came about."""
    called: int = 0
    """In how many of the schedules the product called what was planted."""

    @property
    def found(self) -> bool:
        return bool(self.checker)

    @property
    def effort(self) -> str:
        """The number of schedules until it was caught, and whether they had an aim."""
        where = AIMED_AT.get(self.name, "")
        return f"{self.schedules} aimed" if where else str(self.schedules)

    @property
    def verdict(self) -> str:
        """By which checker; or why perhaps by none."""
        if self.found:
            return self.checker
        aimed = f"its aim came about in {self.aimed} of them, " if self.name in AIMED_AT else ""
        return f"NOT CAUGHT: {aimed}its code was called in {self.called}"


def seldom(rows: Iterable[Caught]) -> list[str]:
    """Bugs that were caught by schedules which mostly missed their aim."""
    return [
        f"{row.name}: its aim came about in only {row.aimed} of {row.schedules} schedules"
        for row in rows
        if row.found and row.name in AIMED_AT and 2 * row.aimed < row.schedules
    ]


class Planter:
    """Replaces attributes and puts them back."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.calls = 0
        """How often what was put in their place was called: never, if the product does not go there any more."""

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Put `value` in the place of an attribute that must exist and be called alike; returns what was there."""
        original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        check_fit(name, original, value)
        setattr(owner, name, self._counted(value))
        self._stack.callback(setattr, owner, name, original)
        return original

    def _counted(self, value: Any) -> Any:
        if isinstance(value, type):
            return value
        if isinstance(value, property):
            return property(self._counted(value.fget), value.fset)
        if isinstance(value, classmethod):
            return classmethod(self._counted(value.__func__))

        @functools.wraps(value)
        def counted(*args: Any, **options: Any) -> Any:
            self.calls += 1
            return value(*args, **options)

        return counted


def plant(name: str, *, aim: str = "") -> Callable[[Callable[[Planter], None]], Callable[[Planter], None]]:
    """Put a bug on the list, and the aim that shows it."""

    def enter(function: Callable[[Planter], None]) -> Callable[[Planter], None]:
        PLANTS[name] = function
        if aim:
            AIMED_AT[name] = aim
        return function

    return enter


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[Planter]:
    """The product with one bug in it."""
    with ExitStack() as stack:
        planter = Planter(stack)
        if name is not None:
            _plant_of(name)(planter)
        yield planter


def _plant_of(name: str) -> Callable[[Planter], None]:
    from tests.sim.defects import DEFECTS

    return PLANTS[name] if name in PLANTS else DEFECTS[name].plant


def catch(name: str, *, limit: int = 500, first_seed: int = 0, scenario: str = "everything") -> Caught:
    """Run schedules until one finds the bug: of its aim, if it has one."""
    from tests.sim.aims import AIMS
    from tests.sim.scenarios import SCENARIOS

    importlib.import_module("tests.sim.defects")  # they say what shows them, too
    scenario = AIMED_AT.get(name, scenario)
    aimed = called = 0
    for count in range(1, limit + 1):
        with planted(name) as planter:
            verdict = SCENARIOS[scenario].schedule(first_seed + count - 1).run()
        aimed += scenario not in AIMS or verdict.fired[f"fault: {scenario}"] > 0
        called += planter.calls > 0
        if verdict.violations:
            told = _most_telling(name, scenario, verdict.violations)
            checkers = frozenset(map(_checker_of, verdict.violations))
            return Caught(name, count, _checker_of(told), told, checkers, aimed, called)
    return Caught(name, limit, "", "", aimed=aimed, called=called)


def _most_telling(name: str, scenario: str, violations: list[str]) -> str:
    """Prefer checkers over missing convergence and exceptions; for resize bugs, prefer invariants."""
    own = "B" if scenario == "resize" or name not in PLANTS else ""
    judged = [one for one in violations if not one.startswith("run: ")]
    return next((one for one in judged if one.startswith(own)), next(iter(judged), violations[0]))


def _checker_of(violation: str) -> str:
    if violation.startswith("run: L"):
        return violation.split(":")[1].strip()
    if violation.startswith("run: "):
        return "an error that nobody handled"
    return violation.partition(":")[0]


# In the order of the table.
for _subject in (
    "replication",
    "controller",
    "groups",
    "resizes",
    "transactions",
    "access",
    "found",
    "left_behind",
    "silence",
):
    importlib.import_module(f"tests.sim.planted_{_subject}")
