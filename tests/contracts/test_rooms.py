"""The packages of `broker/` form layers: imports go down only, in at most twelve layers."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2] / "broker"
FLOORS_MAX: Final = 12


def imports() -> dict[str, set[str]]:
    """Which rooms each room imports, for type checkers too."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anabranch.broker."):
                other = (node.module or "").split(".")[2]
                if other != room:
                    found[room].add(other)
    return found


def floors(below: dict[str, set[str]]) -> dict[str, int]:
    """Return the level of each package: one above the highest level that it imports. A cycle raises RecursionError."""
    known: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in known:
            known[room] = 1 + max((floor(other) for other in below.get(room, ())), default=0)
        return known[room]

    for room in below:
        floor(room)
    return known


def test_packages_have_at_most_twelve_layers_and_no_cycle() -> None:
    found = floors(imports())
    assert max(found.values()) <= FLOORS_MAX, found
    assert found["node"] > found["handlers"] - 2 and found["tasks"] == 1


def test_import_cycle_is_detected() -> None:
    try:
        floors({"a": {"b"}, "b": {"a"}})
    except RecursionError:
        return
    raise AssertionError("a circle has no floors")
