"""Times an application of `counting`. Needs only Python, because Faust has its own."""

from __future__ import annotations

import os
import sys
import time

RECORDS = "ANABRANCH_COUNTED"
"""The environment variable with the number of records."""


class Marks:
    """Reads the clocks after a quarter of the records and after all."""

    def __init__(self) -> None:
        self._all = int(os.environ[RECORDS])
        self._first = self._all // 4
        self._seen = 0
        self._started_s = (0.0, 0.0)

    def one(self) -> None:
        """Count one record."""
        self._seen += 1
        if self._seen == self._first:
            self._started_s = time.perf_counter(), time.process_time()
        elif self._seen == self._all:
            clock_s, processor_s = time.perf_counter() - self._started_s[0], time.process_time() - self._started_s[1]
            counted = self._all - self._first
            print(f"counted {counted} in {clock_s} s and {processor_s} s", file=sys.stderr, flush=True)
