"""Kills an audit repeatedly and compares its results: `python -m tests.spark_jobs.kills --times 20`.

A history with every kind of violation is written to a real cluster. An audit in a process of its own reads it in many
small batches; at random moments its driver (Python and JVM together) or one of its Python workers is killed with
SIGKILL, and a driver is started again. At the end violations, counts and what is counted beside must be, sorted, byte
for byte what the pure checks say, as they are for an audit that nobody disturbed.

Counts that a process kept to itself would show: one bucket has nothing more to say after the first batches, and what
is counted beside is the sum over all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from anabranch.spark_jobs import audit, violations
from anabranch.spark_jobs.audit import Target
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.session import AuditSpark
from anabranch.spark_jobs.tallies import Tallies
from tests.spark_jobs import faults, histories
from tests.spark_jobs.live import LiveCluster

TOPIC: Final = "kills-audit"
EXPECT: Final = "kills-flights"
DRIVER: Final = "driver"
WORKER: Final = "worker"
MASTER: Final = "local[2,4]"
"""A task runs four times before the query fails."""
STARTS_MAX: Final = 5
"""Spark gives a Python process ten seconds to start, which a busy machine may not have."""
TIMEOUT_S: Final = 300.0
HOLD_S: Final = 900.0
"""Longer than any test may take; nobody waits for ever for an end that does not come."""
DEATH_TIMEOUT_S: Final = 60.0
"""The kernel frees a JVM's memory before its process is gone."""
BUSY_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Expected:
    """The audit's expected result, whatever happens to its processes."""

    lines: list[str]
    beside: str

    @classmethod
    def of(cls, audited: histories.Audited, together: Tallies) -> Self:
        """The results of the pure checks, and the tallies."""
        return cls(audited.lines, json.dumps(together.as_json(), sort_keys=True))


def audit_output(target: Target) -> list[str]:
    """Everything that an audit wrote down, sorted."""
    lines = [json.dumps(story, sort_keys=True) for story in violations.read(target.violations)]
    return sorted([*lines, *(tally.line() for tally in audit.tallies(target))])


def beside(target: Target) -> str:
    """What was counted beside the checks."""
    return json.dumps(audit.read_ledger(target).total().as_json(), sort_keys=True)


def counted(target: Target) -> dict[str, Any]:
    """What was counted so far, per bucket."""
    found: dict[str, Any] = json.loads(target.summary.read_text()) if target.summary.exists() else {}
    return found


class Driver:
    """An audit in its own process; optionally it waits for its end after `hold` batches."""

    def __init__(self, target: Target, hold: int = 0) -> None:
        words = ["--rows", str(target.rows_per_trigger), "--hold", str(hold)]
        words += ["--audit", target.servers, str(target.directory)]
        words = [sys.executable, "-m", "tests.spark_jobs.kills", *words]
        self._log = (target.directory / "driver.log").open("ab")
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._moved = threading.Condition()
        self._batches = 0
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for_batches(self, count: int) -> bool:
        """Whether so many more batches were written; False if the process ended before."""
        return self.reach(self._batches + count)

    def reach(self, goal: int) -> bool:
        """Whether so many batches are written; False if the process ended before."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._batches >= goal or self._ended, TIMEOUT_S):
                raise TimeoutError(f"{self._batches} of {goal} batches after {TIMEOUT_S:.0f} s: see {self._log.name}")
            return not self._ended

    def kill(self, what: str, rng: random.Random) -> bool:
        """Kill the driver, or a Python worker; whether there was one."""
        if what == WORKER:
            return kill_worker(self._process.pid, rng)
        family = _descendants(self._process.pid)
        self._process.kill()
        for pid in family:
            _kill(pid)
        self.wait()
        # A successor must not meet a JVM that has not noticed yet that it is dead.
        _await_deaths(family)
        return True

    def wait(self) -> int:
        """How the process ended."""
        code = self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        self._log.close()
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for _ in lines:
                with self._moved:
                    self._batches += 1
                    self._moved.notify_all()
        with self._moved:
            self._ended = True
            self._moved.notify_all()


def held(driver: Driver, target: Target, batches: int) -> Driver:
    """A driver, or its successor if it could not start, once it has written so many batches and waits for its end."""
    for _ in range(STARTS_MAX):
        if driver.reach(batches):
            return driver
        driver.wait()
        driver = Driver(target, hold=batches)
    raise RuntimeError(f"the audit does not begin: see {target.directory}/driver.log")


def kill_worker(driver: int, rng: random.Random) -> bool:
    """Kill a Python worker of a driver, by its process id: one that is at work, if one is within a moment.

    Whether there was any.
    """
    python = [pid for pid in _descendants(driver) if b"spark_jobs.daemon" in _command(pid)]
    forked = [pid for pid in python if not _descendants(pid)]  # the daemon itself has them for children
    busy: list[int] = []
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while forked and not busy and time.monotonic() < deadline:
        time.sleep(0.005)
        busy = [pid for pid in forked if _is_running(pid)]
    if forked:
        _kill(rng.choice(busy or forked))
    return bool(forked)


def disturb(target: Target, victims: Iterator[str], rng: random.Random) -> int:
    """Audit to the end while victims are killed, as long as there are any; how many were."""
    target.directory.mkdir(parents=True, exist_ok=True)
    killed, driver = 0, Driver(target)
    for what in victims:
        while driver.wait_for_batches(rng.randint(1, 3)):
            time.sleep(rng.random() * 0.5)
            if driver.kill(what, rng):
                killed += 1
                print(f"killed a {what}: {len(audit_output(target))} lines so far", flush=True)
                break
        else:
            break  # it is through: this victim got away
        if what == DRIVER:
            driver = Driver(target)
    for _ in range(STARTS_MAX):
        if driver.wait() == 0:
            return killed
        print("the driver gave up, and is started again", flush=True)
        driver = Driver(target)
    driver.kill(DRIVER, rng)
    raise RuntimeError(f"the audit does not come to its end: see {target.directory}/driver.log")


def differences(target: Target, expected: Expected) -> list[str]:
    """Unexpected and missing results of an audit."""
    said, lines = audit_output(target), expected.lines
    found = [f"+ {line}" for line in said if line not in lines] + [f"- {line}" for line in lines if line not in said]
    if len(said) != len(lines) and not found:
        found.append(f"{len(said)} lines instead of {len(lines)}")
    if (its := beside(target)) != expected.beside:
        found.append(f"counted beside the checks: {its} instead of {expected.beside}")
    return found


def write_down(live: LiveCluster, seed: int) -> Expected:
    """Store a history with every kind of violation and its audit events; return the pure checks' result."""
    history, missing = faults.everything(random.Random(seed))
    history, written = live.write_history(TOPIC, EXPECT, history)
    written = faults.spoil(written, missing)
    live.write_audit(TOPIC, written)
    together = histories.counted_beside(written, history)
    return Expected.of(histories.audit(written, history.stored), together)


def main() -> int:
    """Kill as often as asked."""
    parser = argparse.ArgumentParser(prog="tests.spark_jobs.kills", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=60, help="records in a batch")
    parser.add_argument("--hold", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--audit", nargs=2, metavar=("SERVERS", "DIRECTORY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.audit is not None:
        return drive(Target(options.audit[0], TOPIC, Path(options.audit[1]), Scope(EXPECT), options.rows), options.hold)
    rng, left, rounds = random.Random(options.seed), options.times, 0
    with tempfile.TemporaryDirectory(prefix="anabranch-kills-") as name, LiveCluster(1) as live:
        directory = Path(name)
        expected = write_down(live, options.seed)
        calm = Target(live.servers, TOPIC, directory / "calm", Scope(EXPECT), options.rows)
        disturb(calm, iter(()), rng)
        if found := differences(calm, expected):
            print("\n".join(["undisturbed, the audit does not say what the pure checks say", *found]))
            return 1
        while left:
            rounds += 1
            target = Target(live.servers, TOPIC, directory / f"round-{rounds}", Scope(EXPECT), options.rows)
            victims = [rng.choice((DRIVER, WORKER)) for _ in range(left)]
            left -= disturb(target, iter(victims), rng)
            if found := differences(target, expected):
                print("\n".join([f"round {rounds} says something else", *found]))
                return 1
    print(f"{options.times} kills in {rounds} audits: {len(expected.lines)} lines, the same byte for byte")
    return 0


def drive(target: Target, hold: int) -> int:
    """The driver: audit what is there, and judge."""
    written = 0

    def note(facts: dict[str, Any]) -> None:
        nonlocal written
        written += 1
        print(json.dumps(facts), flush=True)
        if written == hold:
            time.sleep(HOLD_S)

    with AuditSpark(target.directory, master=MASTER) as session:
        query = audit.start(session, target, note)
        query.processAllAvailable()
        query.stop()
        audit.finish(session, target)
    return 0


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _await_deaths(pids: list[int]) -> None:
    deadline = time.monotonic() + DEATH_TIMEOUT_S
    while left := {pid: command for pid in pids if (command := _command(pid))}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"still there {DEATH_TIMEOUT_S:.0f} s after SIGKILL: {left}")
        time.sleep(0.05)


def _descendants(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):  # it may end while we look
            for path in Path(f"/proc/{parent}/task").glob("*/children"):
                children = [int(one) for one in path.read_text().split()]
                found += children
                waiting += children
    return found


def _is_running(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] == "R"


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
