"""The time of one cluster: it goes on by itself, faster, slower or not at all, and is moved on by users.

Everything of a cluster runs in this clock's `context`, which tasks, timers and connections hand on to what they start;
a `ClockLoop` reads its time there, and keeps its timers here. What runs in another context (the control plane, another
cluster, the test itself) has the time that it has.

A move (`advance`) stops at each moment at which a timer is due, rings it, and goes on when the cluster has nothing left
to do: what would have happened in that time happens, in its order. Timers closer together than a thousandth of the
move ring at one stop, so that a week is moved on in a second. Clients in other processes keep their own time.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from anabranch.clients.clock import wall_clock_ms

if TYPE_CHECKING:
    from anabranch.runtime.startable import Startable

T = TypeVar("T")

STOPS: Final = 1000
"""How many a move makes at most, about."""
CANCELLED_MIN: Final = 100
"""From so many timers on that were cancelled they are dropped, once they are half of all: as asyncio does."""


class ClusterTimer(asyncio.TimerHandle):
    """A timer that rings by the time of a cluster."""

    __slots__ = ("clock",)
    clock: ClusterClock | None
    """The clock that is to ring it; None once it has."""


@dataclass(slots=True)
class _Move:
    until_s: float
    grain_s: float
    done: asyncio.Future[None]


class ClusterClock:
    """The time of one cluster, in seconds from a zero of its own; made by `ClockLoop.new_clock`.

    Args:
        real_s: The time that everybody has.
        forget: What to call with it when its cluster has stopped.
        scale: How many seconds go by in one; 0 stands still.
    """

    def __init__(self, real_s: Callable[[], float], forget: Callable[[ClusterClock], None], scale: float = 1.0) -> None:
        self._real_s = real_s
        self._forget = forget
        self._at_s = self._since_s = real_s()
        self._day_s = wall_clock_ms() / 1000 - self._at_s
        self._scale = scale
        self._timers: list[tuple[float, int, ClusterTimer]] = []
        self._numbers = itertools.count()
        self._cancelled = 0
        self._move: _Move | None = None
        self._turn = asyncio.Lock()
        self.context = contextvars.copy_context()
        """What of the cluster runs in."""
        self.context.run(CLOCK.set, self)

    @classmethod
    def new(cls, scale: float = 1.0) -> Self | None:
        """A clock for a cluster on the running loop; None if that loop has one time for all."""
        new: Callable[[float], Self] | None = getattr(asyncio.get_running_loop(), "new_clock", None)
        return None if new is None else new(scale)

    @property
    def scale(self) -> float:
        """How many seconds go by in one."""
        return self._scale

    def now_s(self) -> float:
        """The time of the cluster's loop."""
        if self._move is not None:
            return self._at_s
        return self._at_s + (self._real_s() - self._since_s) * self._scale

    def day_ms(self) -> int:
        """The time of day in the cluster, in milliseconds since the epoch."""
        return int((self.now_s() + self._day_s) * 1000)

    def lead_ms(self) -> int:
        """How far the time of day is ahead of everybody's."""
        return self.day_ms() - wall_clock_ms()

    def lead_by(self, lead_ms: int) -> None:
        """Have the time of day so far ahead of everybody's; the loop's time only goes on."""
        self._day_s = (wall_clock_ms() + lead_ms) / 1000 - self.now_s()

    def run_at(self, scale: float) -> None:
        """Go on at another pace; 0 stands still. ValueError if it is none."""
        if not (0 <= scale < math.inf):
            raise ValueError(f"the pace of a clock is 0 or more, not {scale}")
        self._set(self.now_s())
        self._scale = scale

    async def advance(self, seconds: float) -> None:
        """Move on by so much; return when all that was due on the way has happened. ValueError if it is the past."""
        if not (0 <= seconds < math.inf):
            raise ValueError(f"a clock only moves on, not by {seconds} seconds")
        async with self._turn:
            self._set(self.now_s())
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._move = _Move(self._at_s + seconds, seconds / STOPS, done)
            try:
                await done
            finally:
                self._move = None
                self._set(self._at_s)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have a part of the cluster work by this clock."""
        return await asyncio.get_running_loop().create_task(work, context=self.context)

    @asynccontextmanager
    async def running(self, cluster: Startable) -> AsyncIterator[None]:
        """Start a cluster that has this time, and stop it at the end of the block."""
        try:
            await self.run(cluster.start())
            yield
        finally:
            await self.run(cluster.stop())
            self._forget(self)

    # --- what the loop asks

    def add(self, timer: ClusterTimer) -> None:
        """Ring this timer when it is due."""
        timer.clock = self
        if self._cancelled > CANCELLED_MIN and self._cancelled > len(self._timers) / 2:
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0
        heapq.heappush(self._timers, (timer.when(), next(self._numbers), timer))

    def count_cancelled(self) -> None:
        """One more of the timers will not ring."""
        self._cancelled += 1

    def wait_s(self) -> float:
        """How long it takes until a timer is due; 0 while the clock is moved on, infinite if nothing comes."""
        if self._move is not None:
            return 0.0
        first_s = self._first_s()
        return max(first_s - self.now_s(), 0.0) / self._scale if self._scale and first_s < math.inf else math.inf

    def due(self) -> list[ClusterTimer]:
        """The timers that ring now, in their order."""
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
        """The loop has nothing left to do: a move goes on to its next stop, or is over."""
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
        self._at_s, self._since_s = at_s, self._real_s()


CLOCK: contextvars.ContextVar[ClusterClock | None] = contextvars.ContextVar("whose time it is", default=None)
"""The clock of the cluster whose part runs; None for what has everybody's time."""
