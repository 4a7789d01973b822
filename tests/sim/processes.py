"""Several processes for many schedules. They start as new interpreters: a fork would inherit the threads, the signal
handlers and the half-held locks of a test process that has run a thousand other tests, and hang once in a while."""

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def pool(processes: int) -> ProcessPoolExecutor:
    """A pool whose processes are quiet; leave it by `with`."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    logging.getLogger().setLevel(logging.ERROR)
    importlib.import_module("tests.sim.scenarios")
    gc.freeze()
