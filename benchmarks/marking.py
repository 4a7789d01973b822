"""Says how long an application of `counting` took for its records. Needs only Python: Faust has one of its own."""

from __future__ import annotations

import os
import sys
import time

RECORDS = "ANABRANCH_COUNTED"
"""Names the environment variable: how many records there are."""


class Marks:
    """Looks at the clocks after a quarter of the records and after all."""

    def __init__(self) -> None:
        self._all = int(os.environ[RECORDS])
        self._first = self._all // 4
        self._seen = 0
        self._begun = (0.0, 0.0)

    def one(self) -> None:
        """One record more."""
        self._seen += 1
        if self._seen == self._first:
            self._begun = time.perf_counter(), time.process_time()
        elif self._seen == self._all:
            clock_s, processor_s = time.perf_counter() - self._begun[0], time.process_time() - self._begun[1]
            counted = self._all - self._first
            print(f"counted {counted} in {clock_s} s and {processor_s} s", file=sys.stderr, flush=True)
