"""Defects of resizes: rules of the published KIP and tempting shortcuts, planted into this product.

Each row names what it stands for by the labels of docs/resize.md. The resize scenario has to notice every one of them
(`python -m tests.sim --defects`): otherwise its green runs would prove nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.sim.planted import AIMED_AT, PLANTS, Caught, Planter, catch, seldom
from tests.sim.processes import pool

SCENARIO: Final = "resize"


@dataclass(frozen=True)
class Defect:
    """One defect: where it comes from, and how to plant it."""

    items: str
    plant: Callable[[Planter], None]


DEFECTS: Final[dict[str, Defect]] = {}


def defect(items: str, name: str, *, aim: str = "") -> Callable[[Callable[[Planter], None]], Callable[[Planter], None]]:
    """Put a defect on the list, and the aim that shows it."""

    def enter(function: Callable[[Planter], None]) -> Callable[[Planter], None]:
        DEFECTS[name] = Defect(items, function)
        if aim:
            AIMED_AT[name] = aim
        return function

    return enter


def matrix(names: list[str], limit: int, processes: int) -> int:
    """Plant each defect and print after how many schedules it was caught, and by which checker."""
    rows: dict[str, Caught] = {}
    print("| item | defect | schedules | caught by |\n|---|---|---:|---|", flush=True)
    with pool(processes) as workers:
        for row in workers.map(partial(catch, limit=limit, scenario=SCENARIO), names or list(DEFECTS)):
            rows[row.name] = row
            print(f"| {DEFECTS[row.name].items} | {row.name} | {row.effort} | {row.verdict} |", flush=True)
    escaped = [row.name for row in rows.values() if not row.found]
    caught = len(rows) - len(escaped)
    print(f"\n{caught} of {len(rows)} caught within {limit} schedules, of the scenario `{SCENARIO}` or aimed")
    for line in seldom(rows.values()):
        print(line)
    return 1 if escaped else 0


for _subject in ("gates", "producers", "brokers", "controllers"):
    importlib.import_module(f"tests.sim.defects_of_{_subject}")

BORROWED: Final = {
    "generation of a batch not checked": "R5",
    "sealed partitions accept records": "R6",
    "a generation is published before its leaders are fenced": "R4",
    "gates are always open": "R9",
    "boundaries are crossed without a flush": "I5",
    "a producer does not wait at the barrier of a resize": "K502",
    "controller writes unfenced": "a zombie controller",
}
"""Planted bugs of the other scenario that belong here, too."""
for _name, _items in BORROWED.items():
    DEFECTS[_name] = Defect(_items, PLANTS[_name])
