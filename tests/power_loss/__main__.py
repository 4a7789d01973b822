"""Let the power fail at every write of several workloads, and recover from what is left of their files.

    python -m tests.power_loss                                      10,000 crash points, and a table
    python -m tests.power_loss "truncations" 3                      all crash points of one seed of a workload
    python -m tests.power_loss "truncations" 3 --operation 117      one of them

A crash point is an operation of a seed. Each draws by the seed what the disk keeps of the unflushed (`disk`).
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from itertools import count

from tests.power_loss.campaign import WORKLOADS, Outcome, play
from tests.sim.processes import pool


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.power_loss", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workload", nargs="?", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--operation", type=int, help="only the crash after this operation")
    parser.add_argument("--crashes", type=int, default=10_000, help="how many at least in all (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.workload is not None:
        outcome = play(options.workload, options.seed, only=options.operation)
        print("\n".join(outcome.faults) or "no fault")
        return 1 if outcome.faults else 0
    return campaign(options.crashes, options.first, options.processes)


def campaign(crashes: int, first: int, processes: int) -> int:
    """Visit so many crash points, evenly over the workloads, and print a table."""
    began = time.monotonic()
    each = -(-crashes // len(WORKLOADS))
    total, guilty, states = 0, 0, set[bytes]()
    print("| workload | seeds | crash points | distinct states of the disk | faults |\n|---|---:|---:|---:|---:|")
    with pool(processes) as workers:
        for workload in WORKLOADS:
            outcomes = list(_enough(workers, workload, first, each, processes))
            faults = [fault for one in outcomes for fault in one.faults]
            distinct = {state for one in outcomes for state in one.states}
            crashed = sum(len(one.states) for one in outcomes)
            row = f"| {workload} | {len(outcomes)} | {crashed:,} | {len(distinct):,} | {len(faults)} |"
            print("\n".join([row, *(fault[:400] for fault in faults[:5])]), flush=True)
            total, guilty, states = total + crashed, guilty + len(faults), states | distinct
    print(f"| all | | {total:,} | {len(states):,} | {guilty} |")
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if guilty else 0


def _enough(workers: Executor, workload: str, first: int, crashes: int, at_once: int) -> Iterator[Outcome]:
    """Play seeds of a workload until there are enough crash points."""
    left = crashes
    for seed in count(first, at_once):
        for outcome in workers.map(play, [workload] * at_once, range(seed, seed + at_once)):
            yield outcome
            left -= len(outcome.states)
        if left <= 0:
            return


if __name__ == "__main__":
    sys.exit(main())
