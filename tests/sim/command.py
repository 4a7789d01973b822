"""The simulation's command line: many seeds, one seed with its story, planted bugs, defects, crash points."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from tests.sim import crash_points
from tests.sim.coverage import Pair, Table
from tests.sim.defects import matrix
from tests.sim.planted import PLANTS, Caught, catch, planted, seldom
from tests.sim.processes import pool
from tests.sim.scenarios import SCENARIOS

BATCH = 8
"""Schedules between two looks at the clock."""


@dataclass(frozen=True)
class Result:
    """What is kept of one schedule."""

    seed: int
    violations: tuple[str, ...]
    fingerprint: str
    fired: Counter[str]
    simulated_s: float
    acknowledged: int
    resizes: int
    phases: Counter[Pair]
    meetings: Counter[Pair]
    protocols: tuple[str, ...]


def run_one(seed: int, scenario: str = "everything") -> Result:
    """Run one schedule quietly."""
    verdict = SCENARIOS[scenario].schedule(seed).run()
    acknowledged = sum(send.outcome == "ok" for send in verdict.history.sends)
    return Result(
        seed,
        tuple(verdict.violations),
        verdict.fingerprint,
        verdict.fired,
        verdict.simulated_s,
        acknowledged,
        verdict.resizes,
        verdict.coverage.phases,
        verdict.coverage.meetings,
        tuple(sorted(verdict.protocols)),
    )


def run_many(seeds: Iterable[int], workers: Executor, scenario: str = "everything") -> Iterator[Result]:
    """Run schedules, in the order of their seeds."""
    return workers.map(partial(run_one, scenario=scenario), seeds, chunksize=4)


def tell(seed: int, bug: str | None, scenario: str) -> int:
    """Run one schedule and print its story."""
    with planted(bug):
        verdict = SCENARIOS[scenario].schedule(seed).run()
    for at_s, line in verdict.history.story:
        print(f"{at_s:9.3f}  {line}")
    print(f"seed {seed}: fingerprint {verdict.fingerprint}, {verdict.simulated_s:.1f} s simulated")
    for line in verdict.violations:
        print(f"VIOLATION  {line}")
    print("no violation" if not verdict.violations else f"{len(verdict.violations)} violations")
    return 1 if verdict.violations else 0


def sweep(first: int, count: int, processes: int, scenario: str, *, minutes: float, coverage: bool) -> int:
    """Run many schedules and sum them up: `count`, or as many as fit into `minutes` if that is more than 0.

    With `coverage`, also print the pairs of actions, phases and protocols.
    """
    covered = Table()
    began = time.monotonic()
    fired: Counter[str] = Counter()
    met: Counter[str] = Counter()
    guilty = []
    simulated_s = acknowledged = resizes = 0.0
    done = 0
    with pool(processes) as workers:
        seeds = range(first, first + count)
        batches = (seeds,) if minutes <= 0 else batches_until(began + minutes * 60, first)
        for result in (one for batch in batches for one in run_many(batch, workers, scenario)):
            done += 1
            fired += result.fired
            met.update(name for name, times in result.fired.items() if times)
            simulated_s += result.simulated_s
            acknowledged += result.acknowledged
            resizes += result.resizes
            covered.add(result.phases, result.meetings, result.protocols)
            if result.violations:
                guilty.append(result.seed)
                print(
                    f"seed {result.seed}: {len(result.violations)} violations, first {result.violations[0][:300]}",
                    flush=True,
                )
            if done % 100 == 0:
                print(f"{done} schedules, {done / (time.monotonic() - began) * 60:.0f} per minute", flush=True)
    took_s = time.monotonic() - began
    print(f"{done} schedules in {took_s:.0f} s: {done / took_s * 60:.0f} per minute, {len(guilty)} with violations")
    print(f"simulated {simulated_s / 3600:.1f} h, {acknowledged:.0f} acknowledged records, {resizes:.0f} resizes")
    for name, times in sorted(fired.items(), key=lambda row: -row[1]):
        print(f"  {times:8d} in {met[name]:5d}  {name}")
    if coverage:
        print(*covered.lines(), sep="\n")
    never = SCENARIOS[scenario].silent(fired, done)
    if never:
        print(f"never happened: {', '.join(never)}")
    for seed in guilty:
        print(f"repeat with: make sim {'' if scenario == 'everything' else f'SCENARIO={scenario} '}SEED={seed}")
    return 1 if guilty or never else 0


def batches_until(deadline_s: float, first: int) -> Iterator[range]:
    """Yield seeds from `first` on, a batch at a time, until the deadline of `time.monotonic`."""
    while time.monotonic() < deadline_s:
        yield range(first, first + BATCH)
        first += BATCH


def table(names: list[str], limit: int, processes: int, scenario: str) -> int:
    """Plant each bug and print after how many schedules it was caught, and by which checker."""
    rows: list[Caught] = []
    with pool(processes) as workers:
        print("| planted bug | schedules | caught by |\n|---|---:|---|")
        for row in workers.map(partial(catch, limit=limit, scenario=scenario), names):
            rows.append(row)
            print(f"| {row.name} | {row.effort} | {row.verdict} |", flush=True)
    missed = [row.name for row in rows if not row.found]
    print(f"\n{len(rows) - len(missed)} of {len(rows)} caught within {limit} schedules", *seldom(rows), sep="\n")
    return 1 if missed else 0


def main(arguments: list[str] | None = None) -> int:
    """What `python -m tests.sim` does."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="run this schedule and print its story")
    parser.add_argument("--schedules", type=int, default=500, help="how many to run (500)")
    parser.add_argument(
        "--scenario", choices=sorted(SCENARIOS), default="everything", help="of which kind (everything)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--planted", nargs="*", metavar="BUG", help="plant bugs, all or these, and print the table")
    parser.add_argument("--with", dest="bug", metavar="BUG", help="plant a bug or a defect in a single run")
    parser.add_argument("--crash-points", action="store_true", help="fail at every step of a controller, in four ways")
    parser.add_argument("--defects", nargs="*", metavar="DEFECT", help="plant defects of resizes, and print the matrix")
    parser.add_argument("--coverage", action="store_true", help="print which actions met which, and when")
    parser.add_argument("--minutes", type=float, default=0, help="run as many schedules as fit in, and not a number")
    options = parser.parse_args(arguments)
    logging.getLogger().setLevel(logging.ERROR)
    if options.crash_points:
        return crash_points.sweep(options.processes)
    if options.defects is not None:
        return matrix(options.defects, options.schedules, options.processes)
    if options.planted is not None:
        return table(options.planted or list(PLANTS), options.schedules, options.processes, options.scenario)
    if options.seed is not None:
        return tell(options.seed, options.bug, options.scenario)
    return sweep(
        options.first,
        options.schedules,
        options.processes,
        options.scenario,
        minutes=options.minutes,
        coverage=options.coverage,
    )


if __name__ == "__main__":
    sys.exit(main())
