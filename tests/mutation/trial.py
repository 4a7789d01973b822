"""Tries mutants in a copy of the checkout: by the tests of their module, other tests that reach it, and simulation.

A mutant that makes the tests hang is noticed, too: the limit is ten times what the tests take without it, and a minute.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.mutation.mutants import Mutant
from tests.test_mirrors import mirror_of

SURVIVED: Final = "survived"
OWN_TESTS: Final = "its own tests"
OTHER_TESTS: Final = "other tests"
SIMULATION: Final = "the simulation"
HANGS: Final = "a time limit"
QUICK: Final = (
    "not spark and not processes and not interop and not zookeeper and not browser and not docker and not hosts"
)
LIMIT_S: Final = 60.0
WIDE_LIMIT_S: Final = 900.0


class Copy:
    """A copy of a checkout, changed by one mutant at a time."""

    def __init__(self, root: Path, directory: Path, schedules: int) -> None:
        self._root = directory / "checkout"
        self._schedules = schedules
        subprocess.run(["git", "clone", "-q", str(root), str(self._root)], check=True)
        self._environment = os.environ | {
            "PYTHONPATH": f"{self._root}/src:{self._root}",
            "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
        }
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._tests = {path: path.read_text() for path in sorted((self._root / "tests").rglob("test_*.py"))}
        self._takes_s: dict[Path, float] = {}
        self._written = 0

    def try_mutant(self, mutant: Mutant) -> str:
        """Return what notices a mutant, or SURVIVED."""
        own = self._root / "tests" / mirror_of(Path(mutant.module))
        limit_s = self._limit_s(own) if own.exists() else LIMIT_S
        path = self._root / mutant.module
        before = path.read_text()
        self._write(path, mutant.source(self._root))
        try:
            if own.exists() and (found := self._run_tests([own], limit_s, OWN_TESTS)):
                return found
            others = [
                one
                for one, text in self._tests.items()
                if one != own and (one.parent == own.parent or _imports(text, mutant.module))
            ]
            if others and (found := self._run_tests(others, WIDE_LIMIT_S, OTHER_TESTS)):
                return found
            return self._simulate()
        finally:
            self._write(path, before)

    def line_of(self, mutant: Mutant) -> str:
        """Return the changed lines of a mutant."""
        before = (self._root / mutant.module).read_text().splitlines()
        after = mutant.source(self._root).splitlines()
        changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
        return " | ".join(line[0] + line[1:].strip() for line in changed)

    def _write(self, path: Path, source: str) -> None:
        """Write a module with a time of its own: Python recognizes compiled modules by second and size."""
        self._written += 1
        path.write_text(source)
        os.utime(path, (self._written, self._written))

    def _limit_s(self, tests: Path) -> float:
        if tests not in self._takes_s:
            start_s = time.monotonic()
            status = self._run(
                ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", QUICK, str(tests)], WIDE_LIMIT_S
            )
            assert status in (0, 5), f"{tests} fails without a mutant"
            self._takes_s[tests] = time.monotonic() - start_s
        return LIMIT_S + 10 * self._takes_s[tests]

    def _run_tests(self, tests: list[Path], limit_s: float, what: str) -> str:
        names = [str(path) for path in tests]
        status = self._run(["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", QUICK, *names], limit_s)
        return HANGS if status is None else "" if status in (0, 5) else what

    def _simulate(self) -> str:
        for seed in range(self._schedules):
            status = self._run(["-m", "tests.sim", str(seed), "--scenario", "swarm"], WIDE_LIMIT_S)
            if status != 0:
                return HANGS if status is None else SIMULATION
        return SURVIVED

    def _run(self, arguments: list[str], limit_s: float) -> int | None:
        """Run Python; returns its exit status, None after the time limit."""
        with subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self._root,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                return process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return None


def _imports(text: str, module: str) -> bool:
    """Whether a test file imports a module, by its dotted name."""
    parts = Path(module).with_suffix("").parts
    folder, name = ".".join(("anabranch", *parts[:-1])), parts[-1]
    return f"from {folder}.{name} import" in text or f"from {folder} import {name}" in text
