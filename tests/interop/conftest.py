"""Shared fixtures of interop tests: the printed matrix, and ignored sockets of other clients."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Generator, Iterator
from typing import Any, Final

import pytest

from tests.loops import collect_garbage, looked_at_again

pytest.register_assert_rewrite("tests.interop.capabilities")

_tests = itertools.count(1)
CELLS: Final = pytest.StashKey[dict[tuple[str, str], str]]()


@pytest.fixture(autouse=True)
def collect_what_other_clients_leave() -> Iterator[None]:
    """Collect garbage here, so that other tests do not fail on it; each 20th time also what outlived its test."""
    with looked_at_again():
        yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        collect_garbage(everything=next(_tests) % 20 == 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """Remember what became of a cell: ok, RED, or the reason why it was skipped."""
    report = yield
    spec = getattr(item, "callspec", None)
    if (
        spec is not None
        and {"client", "capability"} <= set(spec.params)
        and not (report.passed and call.when != "call")
    ):
        cells = item.config.stash.setdefault(CELLS, {})
        reason = report.longrepr[2].removeprefix("Skipped: ") if report.skipped else ""
        cells[spec.params["client"].name, spec.params["capability"]] = reason or ("RED" if report.failed else "ok")
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The matrix, when the whole of it was run."""
    cells = config.stash.get(CELLS, {})
    if cells and os.environ.get("ANABRANCH_INTEROP"):
        terminalreporter.section("interop matrix")
        for line in matrix(cells):
            terminalreporter.write_line(line)


def matrix(cells: dict[tuple[str, str], str]) -> list[str]:
    """One row per client, one column per capability, footnotes for what is missing."""
    clients = list(dict.fromkeys(client for client, _ in cells))
    capabilities = list(dict.fromkeys(capability for _, capability in cells))
    width = max(map(len, clients)) + 2
    lines = [" " * width + "  ".join(capabilities)]
    notes: list[str] = []
    for client in clients:
        row = []
        for capability in capabilities:
            outcome = cells.get((client, capability), "")
            if outcome.startswith("-:"):
                notes.append(f"-  {client} {outcome.removeprefix('-: ')} ({capability})")
            elif outcome.startswith("ABSENT:"):
                notes.append(f"ABSENT  {client}: {outcome.removeprefix('ABSENT: ')}")
            row.append(outcome.partition(":")[0].lower().replace("red", "RED").center(len(capability)))
        lines.append(f"{client:{width}}" + "  ".join(row))
    return [*lines, "", *dict.fromkeys(notes)]
