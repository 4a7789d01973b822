"""Changes the code and runs the tests: `python -m tests.mutation [--sample 500] [--seed 1] [folder ...]`.

Each mutant is tried in a copy of the checkout until something notices it: the tests of its module, the test files
beside them or that import the module, then schedules of the simulation. Those that survive are printed with their line.
Results are appended to a file, and a later run with it tries only mutants that are new or whose module has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutation.mutants import CORES, Mutant, sample
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
    drawn = sample(ROOT, chosen.folders, chosen.sample, chosen.seed)
    done = _read(chosen.results)
    with tempfile.TemporaryDirectory(prefix="anabranch-mutants-") as directory:
        copy = Copy(ROOT, Path(directory), chosen.schedules)
        for number, mutant in enumerate(drawn, 1):
            if (mutant.key, _hash(mutant)) in done:
                continue
            noticed_by = done[mutant.key, _hash(mutant)] = copy.try_mutant(mutant)
            with chosen.results.open("a") as file:
                file.write(json.dumps({"mutant": mutant.key, "source": _hash(mutant), "by": noticed_by}) + "\n")
            what = f": {copy.line_of(mutant)}" if noticed_by == SURVIVED else ""
            sys.stdout.write(f"{number} of {len(drawn)}: {noticed_by}: {mutant.module}:{mutant.line}{what}\n")
            sys.stdout.flush()
    counts = Counter(done[mutant.key, _hash(mutant)] for mutant in drawn)
    sys.stdout.write(f"{len(drawn) - counts[SURVIVED]} of {len(drawn)} noticed: {dict(counts)}\n")
    return 0


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
