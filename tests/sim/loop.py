"""A deterministic event loop with simulated time.

When no callback is ready the clock jumps to the next timer. Timers with equal deadlines run in the order in which they
were made (asyncio's own heap does not promise that), callbacks run first-in-first-out as asyncio does promise, and only
neighbouring wake-ups of tasks are shuffled, by the seed: a task can rely on no order among its peers, a protocol can.

Every callback belongs to a `StreamsProcess`, inherited through the context from whoever scheduled it. A killed process
never runs again, not even its `finally` clauses, exactly like one that got SIGKILL; a frozen one (SIGSTOP) keeps its
callbacks until it is thawed.

The time of day is a number, too: `clients.clock` reads the loop's while the loop runs. A timestamp of the real one
would change how many bytes a batch takes and when a segment is full, and so what happens next.

Reference: the pitfalls measured in asyncio 3.11; `tests/sim/test_world.py` holds each of them.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import logging
import math
import random
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anabranch.clients import clock

if TYPE_CHECKING:
    from tests.sim.network import SimNetwork

T = TypeVar("T")

TURNS_PER_INSTANT_MAX: Final = 200_000
"""More callbacks than this without the clock moving is a livelock."""
CALLBACKS_MAX: Final = 3_000_000
"""More than this, some thirty times what the longest schedule takes, and a run does not come to its end.

Work is counted, not seconds: how long it takes depends on who shares the machine.
"""
EPOCH_MS: Final = 1_700_000_000_000
"""The time of day when a simulation begins."""


class ProcessKilled(BaseException):
    """Raised inside a process at the moment of its death: unwinds it; whatever it does meanwhile has no effect."""


class SimulationStuck(Exception):
    """Nothing is ready and no timer runs (deadlock), the clock does not get on (livelock), or there is no end to it."""


class Process:
    """One simulated operating system process: the unit that is killed and frozen."""

    def __init__(self, name: str, host: str = "") -> None:
        self.name = name
        self.host = host or name
        self.alive = True
        self.frozen = False
        self.held: list[asyncio.Handle] = []
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "frozen" if self.frozen else "running"
        return f"<process {self.name} {state}>"

    def must_live(self) -> None:
        """Called by the ports before any effect: a process that is dead has none."""
        if not self.alive:
            raise ProcessKilled(self.name)


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated process", default=None)
"""Whose code is running; None for the simulation itself, which is never killed or frozen."""


def outside() -> contextvars.Context:
    """A context of the simulation itself, for any caller."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, None)
    return context


class SimHandle(asyncio.Handle):
    """A callback with its process, without `when`, as in uvloop. A schedule makes tens of thousands, so this sets
    asyncio's fields directly.
    """

    __slots__ = ("process", "wakes_task")

    def __init__(self, callback: Any, args: Any, loop: SimLoop, context: contextvars.Context) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None
        self.process = context.get(PROCESS)
        self.wakes_task = isinstance(getattr(callback, "__self__", None), asyncio.Task)


class SimLoop(asyncio.BaseEventLoop):
    """The simulated event loop. `failures` collects unhandled exceptions; a run with failures has failed."""

    network: SimNetwork

    def __init__(self, rng: random.Random, *, shuffle: bool = True) -> None:
        super().__init__()
        self._rng = rng
        self._shuffle = shuffle
        self._now = 0.0
        self._sequence = 0
        self._turns = 0
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._ready: deque[SimHandle] = deque()
        self._over = False
        self.hasty = False
        """Whether timers ring a moment early, as uvloop's do, whose clock counts milliseconds: that one rings does not
        prove that its time has come."""
        self.current: Process | None = None
        self.tasks: list[tuple[asyncio.Task[Any], Process | None]] = []
        self.failures: list[str] = []
        self.callbacks_run = 0

    def __del__(self) -> None:
        pass  # there is nothing to close

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def time_of_day_ms(self) -> int:
        return EPOCH_MS + int(self._now * 1000)

    def elapsed_s(self) -> float:
        """The clock of `clients.clock`: it runs on for frozen processes."""
        return self._now

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, args, self, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> SimHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> SimHandle:
        if self.hasty and (early := math.nextafter(when, 0)) > self._now:
            when = early
        return self.happen_at(when, callback, *args, context=contextvars.copy_context() if context is None else context)

    def happen_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context
    ) -> SimHandle:
        """Call back at exactly this time, never a moment early: the world is no timer of the product."""
        handle = SimHandle(callback, args, self, context)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        process = PROCESS.get() if context is None else context.get(PROCESS)
        task = super().create_task(coro, name=name, context=context)
        self.tasks.append((task, process))
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise NotImplementedError("no threads in a simulation: their order is the operating system's")

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self.network.connect(factory, host, port)

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return self.network.listen(factory, host, port)

    def remove_reader(self, fd: Any) -> bool:
        return False  # nobody reads by file descriptor: a connection is accepted and made at once

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        dead = self.current is not None and not self.current.alive
        if self._over or dead or isinstance(error, ProcessKilled):
            return
        self.failures.append(f"{context.get('message')}: {error!r} in {self.current}")

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: Any) -> None:
        pass  # dropped when its time comes

    def _write_to_self(self) -> None:
        pass

    # --- processes

    def spawn(self, process: Process | None, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Run a coroutine as (part of) a process."""
        context = outside() if process is None else process.context.copy()
        return self.create_task(work, name=name or None, context=context)

    def kill(self, process: Process) -> None:
        """SIGKILL: nothing of the process runs any more."""
        process.alive = False
        process.frozen = False
        process.held.clear()

    def freeze(self, process: Process) -> None:
        """SIGSTOP."""
        process.frozen = True

    def thaw(self, process: Process) -> None:
        """SIGCONT: what came due meanwhile runs now, in its order."""
        process.frozen = False
        self._ready.extend(process.held)
        process.held.clear()

    # --- running

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run until the coroutine is done, then let nothing of this world live on."""
        collecting, real_clock = gc.isenabled(), clock.wall_clock_ms
        gc.disable()  # a collection would run `__del__` and weakref callbacks at times of its own choosing
        clock.wall_clock_ms = self.time_of_day_ms
        try:
            return self.run_until_complete(self.spawn(None, work, "simulation"))
        finally:
            self._bury()
            clock.wall_clock_ms = real_clock
            if collecting:
                gc.enable()

    def _bury(self) -> None:
        self._over = True
        pending = [task.get_coro() for task, _ in self.tasks if not task.done()]
        for task, process in self.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            elif not task.cancelled() and task._log_traceback:  # type: ignore[attr-defined]
                error = task.exception()
                if (process is None or process.alive) and not isinstance(error, ProcessKilled):
                    self.failures.append(f"{task.get_name()} failed and nobody noticed: {error!r}")
        self._ready.clear()
        self._timers.clear()
        self.tasks.clear()
        # Coroutines that are dropped half-way run their `finally` clauses, and complain when those want to await.
        hook, disabled = sys.unraisablehook, logging.root.manager.disable
        sys.unraisablehook = lambda _: None
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings(action="ignore"):  # also of tasks that they begin, which nobody runs
                for coroutine in pending:
                    _close(coroutine)
                gc.collect()
        finally:
            sys.unraisablehook = hook
            logging.disable(disabled)
        self.close()

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise SimulationStuck(f"nothing is ready and no timer runs; waiting:\n{self.describe_waiting()}")
            if timers[0][0] > self._now:
                self._now = timers[0][0]
                self._turns = 0
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                ready.append(handle)
        turn = list(ready)
        ready.clear()
        if self._shuffle and len(turn) > 1:
            self._shuffle_wake_ups(turn)
        self._turns += len(turn)
        if self._turns > TURNS_PER_INSTANT_MAX:
            raise SimulationStuck(f"the clock stands still at {self._now:.3f}; last: {turn[:3]}")
        if self.callbacks_run > CALLBACKS_MAX:
            raise SimulationStuck(f"no end after {self.callbacks_run} callbacks, at {self._now:.3f}; last: {turn[:3]}")
        for handle in turn:
            if handle._cancelled:
                continue
            process = handle.process
            if process is not None:
                if not process.alive:
                    continue
                if process.frozen:
                    process.held.append(handle)
                    continue
            self.current = process
            self.callbacks_run += 1
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"Exception in callback {handle}", "exception": error})
        self.current = None

    def _shuffle_wake_ups(self, turn: list[SimHandle]) -> None:
        """Permute each run of adjacent task wake-ups; no wake-up passes a plain callback."""
        start = 0
        for index in range(len(turn) + 1):
            if index < len(turn) and turn[index].wakes_task:
                continue
            if index - start > 1:
                run = turn[start:index]
                self._rng.shuffle(run)
                turn[start:index] = run
            start = index + 1

    def describe_waiting(self) -> str:
        """Every task that waits, for reports."""
        lines = []
        for task, process in self.tasks:
            if not task.done() and (process is None or process.alive):
                stack = task.get_stack(limit=1)
                where = f"{stack[0].f_code.co_qualname}:{stack[0].f_lineno}" if stack else "?"
                lines.append(f"  {process.name if process else '-'}: {task.get_name()} at {where}")
        return "\n".join(lines)


def _close(coroutine: Any) -> None:
    for _ in range(10):  # each `finally` that awaits refuses once
        try:
            coroutine.close()
        except BaseException:
            continue
        return
