"""Lets the power fail at each operation of a workload, and counts what was tried and what was wrong."""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.power_loss.disk import MODES, Tree, check_complete, crashes, materialize
from tests.power_loss.journal_workload import JournalWorkload
from tests.power_loss.recording import Recorder, record
from tests.power_loss.workloads import PROFILES, Fact, LogWorkload

MEMORY: Final = Path("/dev/shm")
JOURNAL: Final = "the journal of ZooKeeper"
WORKLOADS: Final = (*PROFILES, JOURNAL)


def workload_of(name: str, live: Path, rng: random.Random, recorder: Recorder) -> LogWorkload | JournalWorkload:
    """A workload by its name."""
    if name == JOURNAL:
        return JournalWorkload(live, rng, recorder)
    return LogWorkload(live, PROFILES[name], rng, recorder)


@dataclass(frozen=True)
class Outcome:
    """What became of the crashes of one seed of a workload."""

    workload: str
    seed: int
    operations: int
    states: tuple[bytes, ...]
    """A digest of each state of the files that was recovered from."""
    faults: tuple[str, ...]


def play(workload: str, seed: int, *, every: int = 1, only: int | None = None) -> Outcome:
    """Run a workload, and recover from a power failure after each of its operations, each nth, or one of them."""
    place = str(MEMORY) if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="power-loss-", dir=place) as directory:
        root = Path(directory).resolve()
        live = root / "live"
        live.mkdir()
        with record(live) as recorder:
            story = workload_of(workload, live, random.Random(f"{workload} {seed}"), recorder)
            story.run()
        check_complete(recorder.operations, {}, live)
        states, faults = [], []
        for number, disk in crashes(recorder.operations, {}):
            if only not in (None, number) or number % every:
                continue
            rng = random.Random(f"{workload} {seed} {number}")
            mode = MODES[rng.randrange(len(MODES))]
            tree = disk.after_power_loss(rng, mode)
            states.append(digest(tree))
            left = root / "left"
            left.mkdir()
            materialize(tree, left)
            try:
                fault = story.recover(left, *around(story.facts, number))
            except Exception as error:  # the node does not start, or does not work
                fault = f"needs a human: {error!r}"
            shutil.rmtree(left)
            if fault:
                last = recorder.operations[number - 1] if number else None
                what = "the start" if last is None else f"{last.kind} {last.name}"
                faults.append(f"{workload}, seed {seed}, after operation {number} ({what}; {mode} kept): {fault}")
        return Outcome(workload, seed, len(recorder.operations), tuple(states), tuple(faults))


def around(facts: Sequence[Fact], number: int) -> tuple[Any, Any]:
    """The expectations before and after the action that an operation belongs to."""
    place = max(bisect_right(facts, number, key=lambda one: one.operations) - 1, 0)
    return facts[place].expected, facts[min(place + 1, len(facts) - 1)].expected


def digest(tree: Tree) -> bytes:
    """Tell different states of files apart."""
    found = hashlib.sha256()

    def add(path: str, one: bytes | Tree) -> None:
        if isinstance(one, bytes):
            found.update(f"{path} {len(one)} ".encode() + one)
        else:
            found.update(f"{path}/ ".encode())
            for name in sorted(one):
                add(f"{path}/{name}", one[name])

    add("", tree)
    return found.digest()[:12]
