"""Tries mutants: by the tests of their module, by other tests that reach it, and by simulation.

One process imports the product and all tests that may matter. For each mutant it forks processes, which change the code
and run only tests that execute the changed line, the quickest first. Code that is executed by imports is tried in a new
interpreter, too. A mutant that makes tests hang is noticed: the limit is ten times the processor time that they take
without it, and 5 s. What survives `ENOUGH_S` seconds of tests is left to the simulation.
"""

from __future__ import annotations

import importlib
import json
import math
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Final

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.probes import Changes, Probes
from tests.test_mirrors import ELSEWHERE, mirror_of

SURVIVED: Final = "survived"
OWN_TESTS: Final = "its own tests"
OTHER_TESTS: Final = "other tests"
SIMULATION: Final = "the simulation"
HANGS: Final = "a time limit"
QUICK: Final = (
    "not spark and not processes and not interop and not zookeeper and not browser and not docker and not hosts"
)
LIMIT_S: Final = 5.0
FILE_LIMIT_S: Final = 20.0
"""The processor time for the tests of one file without a mutant: later ones are left out."""
WAIT: Final = 60
"""A process is ended, too, after this many times its limit of processor time: others may need the processors."""
STILL_S: Final = 30.0
"""A process that needs no processor time for so long stands still."""
ENOUGH_S: Final = 20.0
NEW_LIMIT_S: Final = 600.0
NEW_FILES: Final = 10
"""As many test files run in a new interpreter."""
SCHEDULE: Final = "schedule "
SEEDS: Final = 6
"""The simulation runs for a mutant those of this many schedules that execute its line."""
OPTIONS: Final = ("-q", "-s", "--assert=plain", "-p", "no:cacheprovider", "-m", QUICK)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a test or of a simulated schedule."""

    name: str
    took_s: float  # of processor time
    passed: bool
    lines: tuple[str, ...]
    """The lines with probes that it executed."""


class Trials:
    """A plugin of pytest that runs no tests, but tries mutants."""

    def __init__(
        self, root: Path, mutants: Iterable[Mutant], probes: Probes, schedules: int, report: Callable[..., None]
    ) -> None:
        self._root = root
        self._mutants = list(mutants)
        self._probes = probes
        self._schedules = schedules
        self._report = report
        self._texts = {path: path.read_text() for path in sorted((root / "tests").rglob("test_*.py"))}
        self._items: dict[str, pytest.Item] = {}
        self._runs: dict[Path, list[Run]] = {}
        self._by_imports: set[str] = set()
        self._written = 0

    def files(self) -> list[str]:
        """Return the test files that may notice any of the mutants."""
        return sorted({str(path) for mutant in self._mutants for paths in self._files_for(mutant) for path in paths})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants."""
        assert not session.testsfailed, "tests cannot be collected"
        self._items = {item.nodeid: item for item in session.items}
        if self._schedules:
            importlib.import_module("tests.sim.command")
        self._by_imports = set(self._probes.seen)
        self._probes.find_functions()
        for mutant in self._mutants:
            self._report(mutant, *self._try(mutant))
        return True

    def _try(self, mutant: Mutant) -> tuple[str, str]:
        """Return what notices a mutant, or SURVIVED, and a detail."""
        before = (self._root / mutant.module).read_text()
        changes = self._probes.changes(mutant.module, before, mutant.source(self._root))
        own, others = self._files_for(mutant)
        left_s, reached = ENOUGH_S, 0
        files = [*own, *sorted(others, key=lambda file: file not in self._runs)]
        for file in files:
            runs = [run for run in self._measure(file) if run.passed and mutant.place in run.lines]
            reached += len(runs)
            if changes is not None and (runs := _within(runs, left_s)):
                left_s -= sum(run.took_s for run in runs)
                if found := self._noticed(mutant, changes, runs, OWN_TESTS if file in own else OTHER_TESTS):
                    return found
        anew = changes is None or mutant.place in self._by_imports
        if anew and (found := self._try_anew(mutant, files[:NEW_FILES])):
            return found
        runs = [run for run in self._measure(Path(SCHEDULE)) if mutant.place in run.lines][: self._schedules]
        if runs and changes is not None and (found := self._noticed(mutant, changes, runs, SIMULATION)):
            return found
        return SURVIVED, f"{reached} tests and {len(runs)} schedules execute it"

    def _files_for(self, mutant: Mutant) -> tuple[list[Path], list[Path]]:
        """Return the test files of a mutant's module, and others that stand beside them or import the module."""
        module = Path(mutant.module)
        tests = self._root / "tests"
        own = [tests / mirror_of(module), *(tests / file for file in ELSEWHERE if _is_tested_in(module, file))]
        own = [file for file in own if file in self._texts]
        importing = [file for file, text in self._texts.items() if _imports(text, mutant.module)]
        beside = [file for file in self._texts if file.parent == tests / mirror_of(module).parent]
        return own, [file for file in dict.fromkeys([*importing, *beside]) if file not in own]

    def _measure(self, file: Path) -> list[Run]:
        """Run the tests of a file, or schedules, without a mutant, once."""
        if file not in self._runs:
            if file == Path(SCHEDULE):
                names = [f"{SCHEDULE}{seed}" for seed in range(SEEDS if self._schedules else 0)]
            else:
                names = [name for name, item in self._items.items() if item.path == file]
            runs, _ = self._fork((self._run(name) for name in names), FILE_LIMIT_S)
            self._runs[file] = sorted(runs, key=lambda run: run.took_s)
        return self._runs[file]

    def _noticed(self, mutant: Mutant, changes: Changes, runs: list[Run], what: str) -> tuple[str, str] | None:
        """Repeat runs with a mutant."""

        def repeat() -> Iterator[Run]:
            for function, code in changes:
                function.__code__ = code
            for run in runs:
                _limit_processor_time(LIMIT_S + 10 * run.took_s)
                yield (result := self._run(run.name))
                if not result.passed:
                    return

        with self._changed(mutant):
            results, ended = self._fork(repeat(), LIMIT_S + 10 * sum(run.took_s for run in runs))
        if results and not results[-1].passed:
            return what, results[-1].name
        if len(results) == len(runs):
            return None
        return what if ended else HANGS, runs[len(results)].name  # the process has crashed, or stands still

    def _try_anew(self, mutant: Mutant, files: list[Path]) -> tuple[str, str] | None:
        """Run test files with a mutant in a new interpreter."""
        failing = [f"--deselect={run.name}" for file in files for run in self._measure(file) if not run.passed]
        command = [sys.executable, "-m", "pytest", "-x", *OPTIONS, *failing, *map(str, files)]
        with self._changed(mutant), suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, cwd=self._root, capture_output=True, timeout=NEW_LIMIT_S, check=False)
            if done.returncode not in (0, 5):
                return OTHER_TESTS, "in a new interpreter"
        return None

    def _run(self, name: str) -> Run:
        self._probes.seen.clear()
        start_s = time.process_time()
        passed = _simulate(int(name.removeprefix(SCHEDULE))) if name.startswith(SCHEDULE) else self._test(name)
        return Run(name, time.process_time() - start_s, passed, tuple(self._probes.seen))

    def _test(self, name: str) -> bool:
        """Run a test with fixtures of its own."""
        item = self._items[name]
        failed = item.session.testsfailed
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return item.session.testsfailed == failed

    def _fork(self, runs: Iterator[Run], limit_s: float) -> tuple[list[Run], bool]:
        """Make runs in a forked process; returns them, and whether they ended within this processor time."""

        def write() -> None:
            os.setsid()
            _limit_processor_time(limit_s)
            for stream in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            for run in runs:
                results.write(json.dumps(astuple(run)) + "\n")
                results.flush()
            os._exit(0)  # threads that tests have left may go on for ever

        with tempfile.TemporaryFile("w+") as results:
            process = multiprocessing.get_context("fork").Process(target=write)
            process.start()
            _wait_for(process, limit_s * WAIT)
            ended = process.exitcode is not None and process.exitcode != -signal.SIGXCPU
            with suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
            results.seek(0)
            rows = [json.loads(line) for line in results if line.endswith("]\n")]
        return [Run(name, took_s, passed, tuple(lines)) for name, took_s, passed, lines in rows], ended

    @contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        """Change the file, too, for processes that tests start."""
        path = self._root / mutant.module
        before = path.read_text()
        self._write(path, mutant.source(self._root))
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, source: str) -> None:
        """Write a module with a time of its own: Python recognizes compiled modules by second and size."""
        self._written += 1
        path.write_text(source)
        os.utime(path, (self._written, self._written))


def _wait_for(process: ForkProcess, limit_s: float) -> None:
    """Wait until a process ends, stands still, or has taken too long."""
    deadline_s = time.monotonic() + limit_s
    used = ""
    while process.exitcode is None and time.monotonic() < deadline_s:
        process.join(STILL_S)
        before, used = used, _processor_time(process.pid)
        if used == before:
            return


def _limit_processor_time(limit_s: float) -> None:
    """Let the system end this process after it has used so many more seconds."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + limit_s), resource.RLIM_INFINITY))


def _processor_time(pid: int | None) -> str:
    """Return the clock ticks that a process has used, in user mode and in the kernel."""
    with suppress(FileNotFoundError):
        return " ".join(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
    return ""


def _within(runs: list[Run], limit_s: float) -> list[Run]:
    """Return the quickest runs that take no longer than the limit in all."""
    found = []
    for run in runs:
        if (limit_s := limit_s - run.took_s) < 0:
            break
        found.append(run)
    return found


def _simulate(seed: int) -> bool:
    from tests.sim.command import run_one  # imports the whole product, after the probes

    return not run_one(seed, "swarm").violations


def _is_tested_in(module: Path, file: str) -> bool:
    """Whether `ELSEWHERE` names a test file for a module."""
    for line in ELSEWHERE[file][1].splitlines():
        folder, _, names = line.partition(": ")
        if Path(folder) == module.parent and module.stem in names.split():
            return True
    return False


def _imports(text: str, module: str) -> bool:
    """Whether a test file imports a module, by its dotted name."""
    parts = Path(module).with_suffix("").parts
    folder, name = ".".join(("anabranch", *parts[:-1])), parts[-1]
    return f"from {folder}.{name} import" in text or f"from {folder} import {name}" in text
