"""Prints the fault matrix: `python -m tests.spark_jobs.matrix --seeds 5`; exit status 1 unless every fault is caught.

Below it, runs in which members die and the topic is resized, and nothing else happens: none may be found guilty, though
no two members have the same time.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

from anabranch.spark_jobs.verdict import clean
from tests.spark_jobs import faults, histories
from tests.spark_jobs.faults import CONTEXTS, FAULTS, PLACES, Case, Misfit

SEEDS_TRIED = 200


def outcomes(case: Case, wanted: int) -> Iterator[str | None]:
    """What went wrong, or nothing, in as many histories as are wanted."""
    for seed in range(SEEDS_TRIED):
        try:
            audited, planted = faults.run(case, seed)
        except Misfit:
            continue
        yield faults.judge(case, audited, planted)
        wanted -= 1
        if not wanted:
            return


def false_alarms(seed: int) -> list[str]:
    """What is found where nothing is wrong."""
    rng = random.Random(seed)
    history = histories.make(rng, counts=(2, 4, 8, 4), crashes=5, numbered=seed % 4 != 0)
    groups = (histories.GROUP, histories.ANOTHER) if seed % 3 == 0 else ()
    if groups:
        history = histories.read_by_another(history, behind=rng.randrange(2 * len(history.handed)))
    written = histories.runs(histories.skewed(history, rng).timed())
    doubled = [run for run in written for _ in range(1 + (rng.random() < 0.1))]
    found = histories.audit(doubled, history.stored, cuts=rng.sample(range(len(doubled)), 8), groups=groups)
    return [one.line() for one in found.violations] + ([] if clean(found.verdict) else ["the verdict is not clean"])


def main() -> int:
    """Print it."""
    parser = argparse.ArgumentParser(prog="tests.spark_jobs.matrix", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="histories per cell")
    parser.add_argument("--clean", type=int, default=20, help="runs without a fault")
    options = parser.parse_args()
    caught = planted = 0
    failures: list[str] = []
    width = max(map(len, FAULTS)) + 9
    print(" " * width + "".join(f"{context:>12}" for context in CONTEXTS))
    for fault in FAULTS:
        for place in PLACES:
            cells = []
            for context in CONTEXTS:
                case = Case(fault, place, context)
                results = list(outcomes(case, options.seeds))
                failures += [f"{case}: {result}" for result in results if result is not None]
                caught += results.count(None)
                planted += len(results)
                cells.append(f"{results.count(None)} of {len(results)}")
            print(f"{fault + ', ' + place:<{width}}" + "".join(f"{cell:>12}" for cell in cells), flush=True)
    print(f"{caught} of {planted} caught")
    alarms = [false_alarms(seed) for seed in range(options.clean)]
    print(
        f"{sum(map(bool, alarms))} false alarms in {options.clean} clean runs with deaths, resizes and repeated events"
    )
    print("".join(f"{line}\n" for line in [*failures, *(line for one in alarms for line in one)]), end="")
    return int(bool(failures) or any(alarms) or caught != planted or caught == 0)


if __name__ == "__main__":
    sys.exit(main())
