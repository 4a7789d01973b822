"""Gives memory that a burst of load has left free back to the system.

glibc keeps what is freed below the last block in use, and after the first large blocks were freed it cuts all others
from the same heap: some 300 MB of batches that were kept for seconds leave 370 MB with the process for good, whose logs
hold 20. Smaller thresholds (`M_MMAP_THRESHOLD`) would give each block back at once, at three times the processor time.
But it gives back what lies at the heap's end as soon as that is 2 MB, and that is what the next requests need: under
load a third of all pages were given back and taken again, or none, as chance had laid the blocks. So it is told to keep
what it has (`Heap.keep`), and the heap is trimmed now and then, when it pays and, as that takes some 0.3 ms a megabyte,
when the process has little else to do; under endless load once a minute.

What Python keeps for itself is looked through the same way. A full collection goes through every object that there is,
in two seconds for 20,000 partitions of three replicas, while the loop stands still; and while they are created it comes
again and again. So what has survived one is frozen (`running.freezing_survivors`): later ones leave it out. Nearly all
of it lives as long as the process, and most of the rest is freed without the collector; circles in it are found when
everything is looked through, now and then, as memory is trimmed.

Only the commands do this, which own their process: a `Cluster` inside another project's tests leaves the heap of that
process alone. Where the C library is not glibc nothing is trimmed.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from collections.abc import Callable
from typing import Final

LOOK_INTERVAL_S: Final = 5.0
WORTH_BYTES: Final = 16 << 20
KEPT_BYTES: Final = 64 << 20
"""More than this is given back at once where it lies at the heap's end."""
OWN_BLOCK_BYTES: Final = 32 << 20
"""A block this large comes from the system, and goes back to it; glibc's own limit grows to that."""
GROWTH_BYTES: Final = 1 << 20
"""By how much more than is needed the heap grows at a time."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of `mallopt`
IDLE_SHARE: Final = 0.1
"""Of a core: a process that uses less has time to trim."""
BUSY_INTERVAL_S: Final = 60.0
SWEEP_INTERVAL_S: Final = 600.0
"""How often a process with time to spare looks through what was frozen; one without, six times as seldom."""


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks")
    ] + [("keepcost", ctypes.c_size_t)]


class Heap:
    """The C library's heap; `known` says whether it can be asked and trimmed."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._info = getattr(library, "mallinfo2", None)
        self._trim = getattr(library, "malloc_trim", None)
        self._option = getattr(library, "mallopt", None)
        if self._info is not None:
            self._info.restype = _Mallinfo2
        self.known = None not in (self._info, self._trim, self._option)

    def free_bytes(self) -> int:
        """How many bytes the heap holds that are not in use."""
        assert self._info is not None
        free: int = self._info().fordblks
        return free

    def keep(self) -> None:
        """Leave it to `trim` to give pages back."""
        assert self._option is not None
        for option, size_bytes in (
            (_TRIM_THRESHOLD, KEPT_BYTES),
            (_MMAP_THRESHOLD, OWN_BLOCK_BYTES),  # else it no longer adapts, and stays at 128 KB
            (_TOP_PAD, GROWTH_BYTES),
        ):
            self._option(option, size_bytes)

    def trim(self) -> None:
        """Give free pages back to the system."""
        assert self._trim is not None
        self._trim(0)


def collect_all() -> None:
    """Collect everything, also what was frozen."""
    gc.unfreeze()
    gc.collect()


class Trimmer:
    """Looks at the heap every few seconds; `looked(now)` decides whether it is trimmed."""

    def __init__(
        self,
        heap: Heap,
        processor_s: Callable[[], float] = time.process_time,
        sweep: Callable[[], None] = collect_all,
    ) -> None:
        self._heap = heap
        self._processor_s = processor_s
        self._sweep = sweep
        self._swept_at = 0.0
        self._looked_at: float | None = None
        self._ran_s = 0.0
        self._trimmed_at = 0.0

    def looked(self, now: float) -> bool:
        """Trim the heap if that is worth it. `now` is the loop's time in seconds. Returns whether it was trimmed."""
        ran_s = self._processor_s()
        before, self._looked_at = self._looked_at, now
        used_s, self._ran_s = ran_s - self._ran_s, ran_s
        if before is None:
            self._trimmed_at = self._swept_at = now
            return False
        idle = used_s < (now - before) * IDLE_SHARE
        if now - self._swept_at >= SWEEP_INTERVAL_S * (1 if idle else 6):
            self._sweep()
            self._swept_at = now
        if not idle and now - self._trimmed_at < BUSY_INTERVAL_S:
            return False
        if not self._heap.known or self._heap.free_bytes() < WORTH_BYTES:
            return False
        self._heap.trim()
        self._trimmed_at = now
        return True


def keep_trimming(loop: asyncio.AbstractEventLoop) -> None:
    """Trim the heap every few seconds for as long as the loop runs, and nothing in between."""
    heap = Heap()
    if heap.known:
        heap.keep()
    _look(loop, Trimmer(heap))


def _look(loop: asyncio.AbstractEventLoop, trimmer: Trimmer) -> None:
    trimmer.looked(loop.time())
    loop.call_later(LOOK_INTERVAL_S, _look, loop, trimmer)
