"""Changes the code and runs the tests: `python -m tests.mutation [--sample 500] [--seed 1] [--part 1/4] [folder ...]`.

Each mutant is tried in a copy of the checkout until something notices it: the tests of its module, the test files
beside them or that import the module, then schedules of the simulation. Those that survive are printed with their line.
Results are appended to a file, and a later run with it tries only mutants that are new or whose module has changed.
Tests wait more than they compute: `--part 1/4` to `--part 4/4` with one file of results can run beside each other.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.compiled_suite import part
from tests.mutation.mutants import CORES, Mutant, part_of_mutants, sample
from tests.mutation.probes import Probes
from tests.mutation.trial import OPTIONS, SURVIVED, Trials

ROOT = Path(__file__).parents[2]
COPY = "ANABRANCH_MUTATION_COPY"
"""The variable that says to a process that it runs in the copy."""


def main() -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("folders", nargs="*", default=CORES, help="folders of modules; by default the pure cores")
    parser.add_argument("--sample", type=int, default=500, help="how many mutants to draw (500)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the draw (1)")
    parser.add_argument("--schedules", type=int, default=3, help="schedules of the simulation for each survivor (3)")
    parser.add_argument(
        "--part", type=part, default=(1, 1), help="N/M: only those of every Mth module, from the Nth on"
    )
    parser.add_argument("--survivors", action="store_true", help="try those again that have survived")
    parser.add_argument("--results", type=Path, default=Path("build/mutants.jsonl"), help="the file of results")
    chosen = parser.parse_args()
    if COPY not in os.environ:
        return _run_in_copy([*sys.argv[1:], "--results", str(chosen.results.absolute())])
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    drawn = part_of_mutants(sample(ROOT, chosen.folders, chosen.sample, chosen.seed), *chosen.part)
    done = _read(chosen.results)
    if chosen.survivors:
        done = {key: by for key, by in done.items() if by != SURVIVED}

    def report(mutant: Mutant, by: str, detail: str) -> None:
        done[mutant.key, _hash(mutant)] = by
        row = {"mutant": mutant.key, "source": _hash(mutant), "by": by, "line": mutant.line, "detail": detail}
        with chosen.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        what = f": {_difference(mutant)}" if by == SURVIVED else ""
        print(f"{time.strftime('%H:%M:%S')} {len(done)}: {by}, {detail}: {mutant.place}{what}", flush=True)

    waiting = [mutant for mutant in drawn if (mutant.key, _hash(mutant)) not in done]
    if waiting:
        probes = Probes((mutant.module, mutant.line) for mutant in waiting)
        probes.install()
        trials = Trials(ROOT, waiting, probes, chosen.schedules, report)
        pytest.main([*OPTIONS, *trials.files()], plugins=[trials])
    counts = Counter(done.get((mutant.key, _hash(mutant)), "not tried") for mutant in drawn)
    print(f"of {len(drawn)} mutants: {dict(counts)}")
    return 0


def _run_in_copy(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="anabranch-mutants-") as directory:
        copy = Path(directory) / "checkout"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        environment = os.environ | {
            COPY: "1",
            "PYTHONPATH": f"{copy}/src:{copy}",
            "PYTHONPYCACHEPREFIX": f"{directory}/compiled",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.call([sys.executable, "-m", "tests.mutation", *arguments], cwd=copy, env=environment)


def _difference(mutant: Mutant) -> str:
    """Return the changed lines of a mutant."""
    before, after = (ROOT / mutant.module).read_text().splitlines(), mutant.source(ROOT).splitlines()
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    return " | ".join(line[0] + line[1:].strip() for line in changed)


def _hash(mutant: Mutant) -> str:
    return hashlib.sha256((ROOT / mutant.module).read_bytes()).hexdigest()[:16]


def _read(results: Path) -> dict[tuple[str, str], str]:
    """Return what noticed a mutant, by its key and the hash of its module."""
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {(row["mutant"], row["source"]): row["by"] for row in rows}


if __name__ == "__main__":
    sys.exit(main())
