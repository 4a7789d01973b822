"""Schedules without probes, and their fingerprints, for the comparison of two builds.

Compiled modules call one another without looking up what a probe has put in a function's place, so a build that is
compiled can only be compared where nobody wraps anything. What clients, brokers and controllers do and log, and when,
is in the fingerprint all the same. Violations are not looked for: many checkers need what probes see.

    python -m tests.sim.unwatched resize 1 2 3
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tests.sim import probes, request_probes, resize_probes
from tests.sim.command import run_one


@contextlib.contextmanager
def _nobody(cluster: Any) -> Iterator[None]:
    yield


def main(scenario: str, *seeds: str) -> None:
    """Print the fingerprints of schedules."""
    with contextlib.ExitStack() as stack:
        for module in (probes, request_probes, resize_probes):
            stack.enter_context(mock.patch.object(module, "watching", _nobody))
        print(json.dumps({seed: run_one(int(seed), scenario).fingerprint for seed in seeds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
