"""Runs the same schedules in another process with other string hashes, in a given order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping

HASH_SEED = "77"


def fingerprints_elsewhere(seeds: Iterable[int], scenario: str) -> Mapping[int, str]:
    """The fingerprint of each schedule, run one after another as they come."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, scenario, *map(str, seeds)],
        env={**os.environ, "PYTHONHASHSEED": HASH_SEED},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {int(seed): fingerprint for seed, fingerprint in json.loads(done.stdout).items()}


def main(scenario: str, *seeds: str) -> None:
    """Print the fingerprints of schedules."""
    from tests.sim.command import run_one

    print(json.dumps({seed: run_one(int(seed), scenario).fingerprint for seed in seeds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
