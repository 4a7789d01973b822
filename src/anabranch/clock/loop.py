"""An event loop with a separate clock for each cluster, on which single nodes can be frozen.

See `ClusterClock` and `Process`. Without clocks and frozen nodes it behaves as asyncio's own loop. uvloop cannot be
extended this way.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import selectors
from collections import deque
from collections.abc import Callable
from time import monotonic  # noqa: TID251  # a loop reads its clock, as asyncio's does
from typing import Any

from anabranch.clients.clock import system_elapsed_s
from anabranch.clock.cluster_clock import CLOCK, ClusterClock, ClusterTimer
from anabranch.clock.process import Event, FrozenWork


class ClockLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with optional clocks for clusters."""

    _ready: deque[asyncio.Handle]
    _selector: selectors.BaseSelector
    _transports: Any

    def __init__(self) -> None:
        self._clocks: tuple[ClusterClock, ...] = ()
        self.ice = FrozenWork(self)
        super().__init__(_Selector(self._wait))

    def new_clock(self, scale: float = 1.0) -> ClusterClock:
        """Create a clock for a cluster on this loop."""
        clock = ClusterClock(monotonic, self._forget, scale, elapsed_s=system_elapsed_s)
        self._clocks += (clock,)
        return clock

    def _forget(self, clock: ClusterClock) -> None:
        """Remove the clock of a stopped cluster."""
        self._clocks = tuple(one for one in self._clocks if one is not clock)

    def time(self) -> float:
        """The time of the running code's clock."""
        clock = CLOCK.get()
        return monotonic() if clock is None else clock.now_s()

    def time_of_day(self) -> Callable[[], int] | None:
        """For `clients.clock`: the time of day of the running code's clock; None in real time."""
        clock = CLOCK.get()
        return None if clock is None else clock.day_ms

    def elapsed_s(self) -> float:
        """For `clients.clock`: this loop's time, because a process is stopped only together with its clock."""
        return self.time()

    def call_at(  # type: ignore[override]  # asyncio hands its arguments on as they are
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback on the running code's clock; called by asyncio."""
        clock = CLOCK.get()
        if clock is None:
            return super().call_at(when, callback, *args, context=context)
        timer = ClusterTimer(when, callback, args, self, context)
        clock.add(timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, ClusterTimer):
            if handle.clock is not None:
                handle.clock.count_cancelled()
        else:
            super()._timer_handle_cancelled(handle)  # type: ignore[misc]

    def _process_events(self, event_list: list[Event]) -> None:
        """Process socket events, except those of frozen processes; called by asyncio."""
        if not self.ice.frozen:
            super()._process_events(event_list)  # type: ignore[misc]
            return
        super()._process_events(self.ice.without_frozen(event_list))  # type: ignore[misc]
        self.ice.defer()

    def _add_reader(self, fd: int, callback: Callable[..., Any], *args: Any) -> Any:
        self.ice.listen(fd)
        return super()._add_reader(fd, callback, *args)  # type: ignore[misc]

    def _remove_reader(self, fd: int) -> Any:
        self.ice.listen(fd)
        return super()._remove_reader(fd)  # type: ignore[misc]

    def _add_writer(self, fd: int, callback: Callable[..., Any], *args: Any) -> Any:
        self.ice.listen(fd)
        return super()._add_writer(fd, callback, *args)  # type: ignore[misc]

    def _remove_writer(self, fd: int) -> Any:
        self.ice.listen(fd)
        return super()._remove_writer(fd)  # type: ignore[misc]

    def _wait(self, select: Callable[[float | None], Any], timeout: float | None) -> Any:
        """Wait for sockets until a timer of any clock is due."""
        clocks, ready = self._clocks, self._ready
        wait_s = math.inf if timeout is None else timeout
        if wait_s > 0:
            for clock in clocks:
                wait_s = min(wait_s, clock.wait_s())
        found = select(None if wait_s == math.inf else wait_s)
        for clock in clocks:
            if not found and not ready:
                clock.rest()
            ready.extend(clock.due())
        return found


class _Selector(selectors.DefaultSelector):
    def __init__(self, wait: Callable[[Callable[[float | None], Any], float | None], Any]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Any:
        return self._wait(super().select, timeout)
