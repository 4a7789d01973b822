"""Run every benchmark, and print one table of all targets: `python -m benchmarks [NAME ...]`.

A single benchmark accepts its own options: `python -m benchmarks scale --topics 1000 5000`.

The exit code is 1 if a machine-independent ratio is missed (generated codecs against the reference), or if a benchmark
could not run; never because the machine was slow.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import Final

from benchmarks.report import Figure, console, summary

NAMES: Final = (
    *("startup", "codec", "request_path", "inspection", "log", "latency", "small_requests", "tails", "throughput"),
    "loop_holds",
    *("processes", "consume"),
    *(
        "security",
        "proxy",
        "control",
        "assigning",
        "failover",
        "resize",
        "scale",
        "beside_idle",
        "handoff",
        "opening",
        "counting",
        "streams_peers",
        "streams_restore",
        "streams_scaling",
        "stock_groups",
        "audit",
    ),
    "audit_floor",
    "audit_cost",
    "audit_workers",
)
MUST_HOLD: Final = frozenset({"codec"})


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default: all): {', '.join(NAMES)}")
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in NAMES and any(one.startswith("-") for one in given[1:]):
        alone: int = importlib.import_module(f"benchmarks.{given[0]}").main(given[1:])
        return alone
    names = parser.parse_args(given).names or NAMES
    if unknown := sorted(set(names) - set(NAMES)):
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    figures: list[Figure] = []
    missed = False
    start_s = time.perf_counter()
    for number, name in enumerate(names, 1):
        console.rule(f"{number} of {len(names)}: {name}")
        found = importlib.import_module(f"benchmarks.{name}").measure()
        missed = missed or (name in MUST_HOLD and not all(one.met for one in found))
        figures += found
    console.rule(f"{time.perf_counter() - start_s:.0f} s")
    summary(figures)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
