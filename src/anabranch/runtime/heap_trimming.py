"""Returns free memory to the system after a burst of load.

glibc keeps free memory below the last block in use. After large blocks were freed, it takes further blocks from the
same heap: 300 MB of batches held for seconds leave 370 MB in a process whose logs hold 20 MB. Smaller thresholds
(`M_MMAP_THRESHOLD`) would return each block at once, at three times the processor time. By default glibc returns the
heap's end when 2 MB are free, although the next requests need it: under load, depending on chance, a third of all pages
were returned and taken again, or none. `Heap.keep` disables that. The heap is trimmed when enough is free and the
process is nearly idle, because trimming takes some 0.3 ms per megabyte; under constant load, once a minute.

Garbage collection is limited, too. A full collection visits every object. For 20,000 partitions of three replicas it
blocks the loop for two seconds, and it repeats while objects are created. Objects that survive two collections of young
objects are therefore frozen (`runner.freezing_survivors`): later collections skip them, and none takes 10 ms. Most of
these live as long as the process, and most others are freed without the collector. A complete collection finds cycles
among frozen objects. It runs rarely, and only after the number of memory blocks has grown by a quarter.

Only commands do this, because they own their process: a `Cluster` in another project's tests does not change that
process's heap. Without glibc nothing is trimmed.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from typing import Final

LOOK_INTERVAL_S: Final = 5.0
WORTH_BYTES: Final = 16 << 20
KEPT_BYTES: Final = 64 << 20
"""Free memory above this at the heap's end is returned at once."""
OWN_BLOCK_BYTES: Final = 32 << 20
"""Blocks of this size are mapped separately, and returned when freed; glibc's own limit grows up to this."""
GROWTH_BYTES: Final = 1 << 20
"""The additional growth of the heap at each extension."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of `mallopt`
IDLE_SHARE: Final = 0.1
"""The processor share, of one core, below which the process has time to trim."""
BUSY_INTERVAL_S: Final = 60.0
SWEEP_INTERVAL_S: Final = 600.0
"""The shortest interval of complete collections of an idle process; a busy one runs them six times less often."""
SWEEP_GROWTH: Final = 1.25
"""A complete collection is due when this many times the memory blocks exist that the last one left."""


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks")
    ] + [("keepcost", ctypes.c_size_t)]


class Heap:
    """The C library's heap; `known`: whether it can be inspected and trimmed."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._info = getattr(library, "mallinfo2", None)
        self._trim = getattr(library, "malloc_trim", None)
        self._option = getattr(library, "mallopt", None)
        if self._info is not None:
            self._info.restype = _Mallinfo2
        self.known = None not in (self._info, self._trim, self._option)

    def free_bytes(self) -> int:
        """The number of free bytes in the heap."""
        assert self._info is not None
        free: int = self._info().fordblks
        return free

    def keep(self) -> None:
        """Keep free pages until `trim` is called."""
        assert self._option is not None
        for option, size_bytes in (
            (_TRIM_THRESHOLD, KEPT_BYTES),
            (_MMAP_THRESHOLD, OWN_BLOCK_BYTES),  # otherwise fixed at 128 KB, without adapting
            (_TOP_PAD, GROWTH_BYTES),
        ):
            self._option(option, size_bytes)

    def trim(self) -> None:
        """Return free pages to the system."""
        assert self._trim is not None
        self._trim(0)


def collect_all() -> None:
    """Collect all garbage, including frozen objects."""
    gc.unfreeze()
    gc.collect()


class Trimmer:
    """Checks the heap every few seconds; `looked(now)` decides whether to trim it."""

    def __init__(
        self,
        heap: Heap,
        processor_s: Callable[[], float] = time.process_time,
        sweep: Callable[[], None] = collect_all,
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._heap = heap
        self._processor_s = processor_s
        self._sweep = sweep
        self._blocks = blocks
        self._swept_at = 0.0
        self._blocks_left = 0
        self._looked_at: float | None = None
        self._ran_s = 0.0
        self._trimmed_at = 0.0

    def trim_if_due(self, now: float) -> bool:
        """Trim the heap if that is worth it; returns whether it did. `now` is the loop's time in seconds."""
        ran_s = self._processor_s()
        before, self._looked_at = self._looked_at, now
        used_s, self._ran_s = ran_s - self._ran_s, ran_s
        if before is None:
            self._trimmed_at = self._swept_at = now
            self._blocks_left = self._blocks()
            return False
        idle = used_s < (now - before) * IDLE_SHARE
        if now - self._swept_at >= SWEEP_INTERVAL_S * (1 if idle else 6):
            self._swept_at = now
            if self._blocks() >= self._blocks_left * SWEEP_GROWTH:
                self._sweep()
                self._blocks_left = self._blocks()
        if not idle and now - self._trimmed_at < BUSY_INTERVAL_S:
            return False
        if not self._heap.known or self._heap.free_bytes() < WORTH_BYTES:
            return False
        self._heap.trim()
        self._trimmed_at = now
        return True


def keep_trimming(loop: asyncio.AbstractEventLoop) -> None:
    """Check and trim the heap every few seconds while the loop runs."""
    heap = Heap()
    if heap.known:
        heap.keep()
    _look(loop, Trimmer(heap))


def _look(loop: asyncio.AbstractEventLoop, trimmer: Trimmer) -> None:
    trimmer.trim_if_due(loop.time())
    loop.call_later(LOOK_INTERVAL_S, _look, loop, trimmer)
