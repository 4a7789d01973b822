"""Several processes for many schedules. They start as new interpreters: a fork would inherit the threads, the signal
handlers and the half-held locks of a test process that has run a thousand other tests, and hang once in a while."""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def schedule_parser(program: str, summary: str | None, schedules: int = 100) -> argparse.ArgumentParser:
    """The options of a command that runs schedules."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=(summary or "").partition("\n")[0])
    parser.add_argument("seed", nargs="?", type=int, help="play this schedule and print its story")
    parser.add_argument("--schedules", type=int, default=schedules, help=f"how many ({schedules})")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--processes", type=int, default=2)
    return parser


def run_schedules(
    play: Callable[..., tuple[Any, ...]],
    options: argparse.Namespace,
    conclude: Callable[[list[Any]], str] | None = None,
) -> int:
    """Run many seeds, or one with its story; return the exit status.

    `play` returns the seed, its violations, what happened, and perhaps more for `conclude`, which makes a line of it.
    """
    logging.getLogger().setLevel(logging.CRITICAL)
    if options.seed is not None:
        _, violations, *_ = play(options.seed, tell=True)
        print("\n".join(violations) or "no violation")
        return 1 if violations else 0
    began, fired, guilty, more = time.monotonic(), Counter[str](), 0, list[Any]()
    with pool(options.processes) as workers:
        seeds = range(options.first, options.first + options.schedules)
        for seed, violations, happened, *rest in workers.map(play, seeds):
            fired += happened
            more += rest
            guilty += bool(violations)
            if violations:
                print(f"seed {seed}: {len(violations)} violations, first {violations[0][:300]}", flush=True)
    for what, times in sorted(fired.items(), key=lambda row: -row[1]):
        print(f"{times:10d}  {what}")
    if conclude is not None:
        print(conclude(more))
    print(f"{options.schedules} schedules in {time.monotonic() - began:.0f} s, {guilty} with violations")
    return 1 if guilty else 0


def pool(processes: int) -> ProcessPoolExecutor:
    """A pool whose processes are quiet; leave it by `with`."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    logging.getLogger().setLevel(logging.ERROR)
    importlib.import_module("tests.sim.scenarios")
    gc.freeze()
