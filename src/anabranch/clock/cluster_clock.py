"""The clock of one cluster: it runs at real pace, faster, slower or not at all, and users can advance it.

All code of a cluster runs in the clock's `context`, which tasks, timers and connections pass on; a `ClockLoop` reads
its time there, and keeps its timers here. Code in another context (the control plane, another cluster, the test itself)
keeps its own time.

`advance` stops at each moment at which a timer is due, fires it, and continues when the cluster is idle: everything due
in that time happens, in order. Timers closer together than a thousandth of the move fire at one stop, so a move of a
week takes a second. Clients in other processes keep their own time.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from anabranch.clients.clock import wall_clock_ms
from anabranch.protocol.values import slotted

if TYPE_CHECKING:
    from anabranch.runtime.startable import Startable

T = TypeVar("T")

STOPS: Final = 1000
"""The approximate maximum number of stops of a move."""
PACE_MAX: Final = 1_000_000
"""Eleven days in a second. A faster clock leaves the range of dates, and a float becomes infinite."""
CANCELLED_MIN: Final = 100
"""Cancelled timers are dropped from this number on, once they are half of all: as in asyncio."""


class ClusterTimer(asyncio.TimerHandle):
    """A timer on the clock of a cluster."""

    __slots__ = ("clock",)
    clock: ClusterClock | None
    """The clock that will fire it; None once it has."""


@slotted
class _Move:
    until_s: float
    grain_s: float
    done: asyncio.Future[None]


class ClusterClock:
    """The clock of one cluster, in seconds from its own zero; created by `ClockLoop.new_clock`.

    Args:
        real_s: The real time in seconds.
        forget: Called with the clock when its cluster has stopped.
        scale: Cluster seconds per real second; 0 stops the clock.
        elapsed_s: The real time in seconds, also that in which the machine was suspended.
    """

    def __init__(
        self,
        real_s: Callable[[], float],
        forget: Callable[[ClusterClock], None],
        scale: float = 1.0,
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        self._real_s = real_s
        self._elapsed_s = elapsed_s
        self._forget = forget
        self._at_s = self._since_s = real_s()
        self._elapsed_since_s = elapsed_s()
        self._day_s = wall_clock_ms() / 1000 - self._at_s
        self._scale = scale
        self._timers: list[tuple[float, int, ClusterTimer]] = []
        self._numbers = itertools.count()
        self._cancelled = 0
        self._move: _Move | None = None
        self._turn = asyncio.Lock()
        self.context = contextvars.copy_context()
        """The context in which the cluster runs."""
        self.context.run(CLOCK.set, self)

    @classmethod
    def new(cls, scale: float = 1.0) -> Self | None:
        """Create a clock for a cluster on the running loop; None if that loop is no ClockLoop."""
        new: Callable[[float], Self] | None = getattr(asyncio.get_running_loop(), "new_clock", None)
        return None if new is None else new(scale)

    @property
    def scale(self) -> float:
        """Cluster seconds per real second."""
        return self._scale

    def now_s(self) -> float:
        """The time of the cluster's loop."""
        if self._move is not None:
            return self._at_s
        return self._at_s + (self._real_s() - self._since_s) * self._scale

    def day_ms(self) -> int:
        """The time of day in the cluster, in milliseconds since the epoch.

        Unlike the loop's time, it counts the time in which the machine was suspended: timestamps would be hours old.
        """
        return int(self._time_of_day_s() * 1000)

    def _time_of_day_s(self) -> float:
        passed_s = 0.0 if self._move is not None else self._elapsed_s() - self._elapsed_since_s
        return self._at_s + passed_s * self._scale + self._day_s

    def lead_ms(self) -> int:
        """How far the time of day is ahead of real time, in milliseconds."""
        return self.day_ms() - wall_clock_ms()

    def lead_by(self, lead_ms: int) -> None:
        """Set how far the time of day is ahead of real time; the loop's time never goes back."""
        self._set(self.now_s())
        self._day_s = (wall_clock_ms() + lead_ms) / 1000 - self._at_s

    def run_at(self, scale: float) -> None:
        """Set the pace; 0 stops the clock. ValueError for an invalid pace."""
        if not 0 <= scale <= PACE_MAX:
            raise ValueError(f"the pace of a clock must be 0 or more, at most {PACE_MAX:,}, not {scale}")
        self._set(self.now_s())
        self._scale = scale

    async def advance(self, seconds: float) -> None:
        """Advance the time, and wait until everything due until then has happened. ValueError for negative seconds."""
        if not (0 <= seconds < math.inf):
            raise ValueError(f"a clock cannot move by {seconds} seconds")
        async with self._turn:
            self._set(self.now_s())
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._move = _Move(self._at_s + seconds, seconds / STOPS, done)
            try:
                await done
            finally:
                self._set(self._at_s)
                self._move = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the cluster on this clock."""
        return await asyncio.get_running_loop().create_task(work, context=self.context)

    @asynccontextmanager
    async def running(self, cluster: Startable) -> AsyncIterator[None]:
        """Start a cluster on this clock, and stop it at the end of the block."""
        try:
            await self.run(cluster.start())
            yield
        finally:
            await self.run(cluster.stop())
            self._forget(self)

    # --- called by the loop

    def add(self, timer: ClusterTimer) -> None:
        """Add a timer."""
        timer.clock = self
        if self._cancelled > CANCELLED_MIN and self._cancelled > len(self._timers) / 2:
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0
        heapq.heappush(self._timers, (timer.when(), next(self._numbers), timer))

    def count_cancelled(self) -> None:
        """Count a cancelled timer."""
        self._cancelled += 1

    def wait_s(self) -> float:
        """The real time until a timer is due; 0 while the clock is advanced, infinite without timers."""
        if self._move is not None:
            return 0.0
        first_s = self._first_s()
        return max(first_s - self.now_s(), 0.0) / self._scale if self._scale and first_s < math.inf else math.inf

    def due(self) -> list[ClusterTimer]:
        """Remove and return the due timers, in order."""
        timers = self._timers
        if not timers or timers[0][0] > (now_s := self.now_s()):
            return []
        found: list[ClusterTimer] = []
        while self._first_s() <= now_s:
            timer = heapq.heappop(self._timers)[2]
            timer.clock = None
            found.append(timer)
        return found

    def rest(self) -> None:
        """The loop is idle: a move goes on to its next stop, or ends."""
        move = self._move
        if move is None or move.done.done():
            return
        if self._at_s >= move.until_s:
            move.done.set_result(None)
        else:
            self._at_s = min(max(self._first_s(), self._at_s) + move.grain_s, move.until_s)

    def _first_s(self) -> float:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
            self._cancelled -= 1
        return self._timers[0][0] if self._timers else math.inf

    def _set(self, at_s: float) -> None:
        """Let the loop's time continue at this moment; the time of day continues where it is."""
        day_s = self._time_of_day_s()
        self._at_s, self._since_s, self._elapsed_since_s = at_s, self._real_s(), self._elapsed_s()
        self._day_s = day_s - at_s


CLOCK: contextvars.ContextVar[ClusterClock | None] = contextvars.ContextVar("the event loop is known", default=None)
"""The clock of the running cluster code; None in real time."""
