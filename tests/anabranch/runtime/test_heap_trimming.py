"""Free heap after a load peak is returned to the system, without delaying work."""

from __future__ import annotations

import subprocess
import sys

import pytest

from anabranch.runtime.heap_trimming import (
    BUSY_INTERVAL_S,
    LOOK_INTERVAL_S,
    SWEEP_GROWTH,
    SWEEP_INTERVAL_S,
    WORTH_BYTES,
    Heap,
    Trimmer,
)


class PretendedHeap(Heap):
    """A heap with a given free size."""

    def __init__(self) -> None:
        self.known = True
        self.free = 0
        self.trims = 0

    def free_bytes(self) -> int:
        return self.free

    def trim(self) -> None:
        self.trims += 1
        self.free = 0


class Story:
    """A process that checks every few seconds, with given work."""

    def __init__(self) -> None:
        self.heap = PretendedHeap()
        self.now = self.ran_s = 0.0
        self.swept_at: list[float] = []
        self.blocks = 0.0
        self.trimmer = Trimmer(
            self.heap, lambda: self.ran_s, lambda: self.swept_at.append(self.now), lambda: int(self.blocks)
        )
        self.trimmer.trim_if_due(self.now)

    def goes_on(self, seconds: float, *, busy: float, free_bytes: int) -> int:
        """How often the heap was trimmed meanwhile."""
        before, until = self.heap.trims, self.now + seconds
        while self.now < until:
            self.heap.free = free_bytes
            self.now += LOOK_INTERVAL_S
            self.ran_s += LOOK_INTERVAL_S * busy
            self.trimmer.trim_if_due(self.now)
        return self.heap.trims - before


def test_heap_is_trimmed_when_load_ends() -> None:
    story = Story()
    assert story.goes_on(40, busy=0.9, free_bytes=20 * WORTH_BYTES) == 0
    assert story.goes_on(LOOK_INTERVAL_S, busy=0.01, free_bytes=20 * WORTH_BYTES) == 1


def test_continuous_load_is_interrupted_periodically() -> None:
    assert Story().goes_on(10 * BUSY_INTERVAL_S, busy=0.9, free_bytes=20 * WORTH_BYTES) == 10


def test_frozen_objects_are_swept_when_idle_and_rarely_under_load() -> None:
    idle, busy = Story(), Story()
    idle.goes_on(6 * SWEEP_INTERVAL_S, busy=0, free_bytes=0)
    busy.goes_on(6 * SWEEP_INTERVAL_S, busy=0.9, free_bytes=0)
    assert idle.swept_at == [SWEEP_INTERVAL_S * number for number in range(1, 7)]
    assert busy.swept_at == [6 * SWEEP_INTERVAL_S]


def test_frozen_objects_are_not_swept_until_memory_has_grown() -> None:
    story = Story()
    story.blocks = 1000
    story.goes_on(SWEEP_INTERVAL_S, busy=0, free_bytes=0)
    assert story.swept_at == [SWEEP_INTERVAL_S], "all these blocks are new"
    story.blocks = 1000 * SWEEP_GROWTH - 1
    story.goes_on(6 * SWEEP_INTERVAL_S, busy=0, free_bytes=0)
    assert story.swept_at == [SWEEP_INTERVAL_S]
    story.blocks += 1
    story.goes_on(SWEEP_INTERVAL_S, busy=0, free_bytes=0)
    assert story.swept_at == [SWEEP_INTERVAL_S, 8 * SWEEP_INTERVAL_S]


def test_full_collection_skips_survivors_until_sweep() -> None:
    """In its own process, because it freezes objects."""
    output = subprocess.run(
        [sys.executable, "-c", FROZEN], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout.split()
    assert output == ["0", "True", "alive", "gone", "True", "0"]


FROZEN = """
import gc, weakref
from anabranch.runtime.heap_trimming import collect_all
from anabranch.runtime.runner import freezing_survivors
class Circle:
    def __init__(self): self.itself = self
print(gc.get_freeze_count())
with freezing_survivors():
    circle = Circle(); seen = weakref.ref(circle)
    gc.collect()
    print(gc.get_freeze_count() > 0)
    del circle
    gc.collect()
    print("gone" if seen() is None else "alive")
    collect_all()
    print("gone" if seen() is None else "alive")
    print(gc.get_freeze_count() > 0)
gc.unfreeze(); gc.collect()
print(gc.get_freeze_count())
"""


def test_small_free_heap_is_kept() -> None:
    assert Story().goes_on(10 * BUSY_INTERVAL_S, busy=0, free_bytes=WORTH_BYTES - 1) == 0


NEEDED_AGAIN = """
import ctypes, sys

sbrk = ctypes.CDLL(None).sbrk
sbrk.restype = ctypes.c_void_p
if sys.argv[1] == "keep":
    from anabranch.runtime.heap_trimming import Heap
    Heap().keep()
bytearray(4 << 20)  # freed: from here on large blocks are cut from the heap
given_back = 0
for _ in range(50):
    large = [bytearray(4 << 20) for _ in range(5)]
    end = sbrk(0)
    del large
    given_back += sbrk(0) < end
print(given_back)
"""


@pytest.mark.skipif(not Heap().known, reason="NO MEMORY IS GIVEN BACK HERE: the C library is not glibc")
@pytest.mark.parametrize(("told", "least", "most"), [("keep", 0, 1), ("nothing", 25, 50)])
def test_heap_needed_again_is_not_released_in_between(told: str, least: int, most: int) -> None:
    """20 MB at the heap's end, fifty times: the system provides them once, or each time. Reads the heap's end, because
    page faults depend on the page size.
    """
    done = subprocess.run([sys.executable, "-c", NEEDED_AGAIN, told], stdout=subprocess.PIPE, check=True, timeout=60)
    assert least <= int(done.stdout) <= most


SCATTERED = """
import asyncio
from pathlib import Path
import anabranch.runtime.heap_trimming, anabranch.runtime.runner

anabranch.runtime.runner.TRIM_FROM_S = anabranch.runtime.heap_trimming.LOOK_INTERVAL_S = 0.1

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

async def main() -> None:
    bytearray(30 << 20)  # freed: from here on large blocks are cut from the heap
    kept, large = [], []
    for _ in range(3000):
        large.append(bytearray(40_000))
        kept.append(bytearray(1000))
    del large
    before = resident()
    async with asyncio.timeout(50):
        while before - resident() < 60 << 20:
            await asyncio.sleep(0.05)
    print("given back")

anabranch.runtime.runner.run(main)
"""


@pytest.mark.skipif(not Heap().known, reason="NO MEMORY IS GIVEN BACK HERE: the C library is not glibc")
def test_command_releases_free_blocks_between_used_ones() -> None:
    """In its own process, because the heap depends on its history."""
    done = subprocess.run([sys.executable, "-c", SCATTERED], capture_output=True, text=True, timeout=120)
    assert done.stdout == "given back\n", done
