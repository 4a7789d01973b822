"""Changes the code and runs the tests: `python -m tests.mutation [--sample 500] [--seed 1] [folder ...]`.

Each mutant is tried in a copy of the checkout until something notices it: the tests of its module, every test file that
imports the module, then schedules of the simulation. Those that survive are printed with their line. Results are
appended to a file, and a run goes on where the last one with this file ended.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutation.mutants import CORES, sample
from tests.mutation.trial import SURVIVED, Copy

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("folders", nargs="*", default=CORES, help="folders of modules; by default the pure cores")
    parser.add_argument("--sample", type=int, default=500, help="how many mutants to draw (500)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the draw (1)")
    parser.add_argument("--schedules", type=int, default=6, help="schedules of the simulation for each survivor (6)")
    parser.add_argument("--results", type=Path, default=Path("build/mutants.jsonl"), help="the file of results")
    chosen = parser.parse_args()
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    done = _read(chosen.results, commit.stdout.strip())
    drawn = sample(ROOT, chosen.folders, chosen.sample, chosen.seed)
    with tempfile.TemporaryDirectory(prefix="anabranch-mutants-") as directory:
        copy = Copy(ROOT, Path(directory), chosen.schedules)
        for number, mutant in enumerate(drawn, 1):
            key = f"{mutant.module}:{mutant.operator}:{mutant.occurrence}"
            if key in done:
                continue
            noticed_by = done[key] = copy.try_mutant(mutant)
            with chosen.results.open("a") as file:
                file.write(json.dumps({"commit": commit.stdout.strip(), "mutant": key, "by": noticed_by}) + "\n")
            survives = noticed_by == SURVIVED
            what = (
                f"{mutant.module}:{mutant.line} {copy.line_of(mutant)}"
                if survives
                else f"{mutant.module}:{mutant.line}"
            )
            sys.stdout.write(f"{number} of {len(drawn)}: {noticed_by}: {what}\n")
            sys.stdout.flush()
    counts = Counter(done.values())
    killed = sum(counts.values()) - counts[SURVIVED]
    sys.stdout.write(f"{killed} of {sum(counts.values())} noticed, by {dict(counts)}\n")
    return 0


def _read(results: Path, commit: str) -> dict[str, str]:
    """Return the results of this commit, by mutant."""
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {row["mutant"]: row["by"] for row in rows if row["commit"] == commit}


if __name__ == "__main__":
    sys.exit(main())
