"""A run depends only on its seed: not on process, hashes, log level, time, or earlier runs.

Fifty seeds are run in two processes and in two orders by `test_schedules` and `test_resizing`, which run them anyway.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.sim.command import run_one
from tests.sim.scenarios import SCENARIOS
from tests.sim.schedule import Schedule

CLOCKS: Final = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")
CHANCE: Final = ("random", "uniform", "randint", "randrange", "choice", "choices", "sample", "shuffle", "getrandbits")
OURS: Final = ("anabranch", "tests")


def with_copiers(scenario: str) -> int:
    """The first seed in which there are all kinds of clients."""
    schedules: Callable[[int], Schedule] = SCENARIOS[scenario].schedule
    return next(seed for seed in itertools.count() if schedules(seed).shape.copiers and schedules(seed).shape.chores)


def test_log_level_does_not_change_fingerprint() -> None:
    root = logging.getLogger()
    before = root.level
    fingerprints = set()
    try:
        for level in (logging.DEBUG, logging.CRITICAL):
            root.setLevel(level)
            fingerprints.add(run_one(5).fingerprint)
            assert root.level == level
    finally:
        root.setLevel(before)
    assert len(fingerprints) == 1


def test_simulation_uses_no_real_time_or_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, me = with_copiers("everything"), threading.get_ident()
    asked: set[str] = set()

    def spied(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*args: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            if threading.get_ident() == me and frame.f_globals["__name__"].partition(".")[0] in OURS:
                asked.add(f"{name} in {frame.f_globals['__name__']}:{frame.f_lineno}")
            return function(*args, **options)

        return spy

    def seeded(self: random.Random, seed: Any = None, *args: Any) -> None:
        if seed is None:
            asked.add(f"a Random without a seed in {sys._getframe(2).f_globals['__name__']}")
        original_seed(self, seed, *args)

    original_seed = random.Random.seed
    schedule = SCENARIOS["everything"].schedule(seed)
    with monkeypatch.context() as patch:
        for module, names in ((time, CLOCKS), (random, CHANCE), (os, ("urandom",))):
            for name in names:
                patch.setattr(module, name, spied(f"{module.__name__}.{name}", getattr(module, name)))
        patch.setattr(random.Random, "seed", seeded)
        assert schedule.run().violations == []
    assert asked == set()
