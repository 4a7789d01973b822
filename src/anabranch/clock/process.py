"""A node that shares its loop with others, and can be frozen at any point, as SIGSTOP freezes a process.

All code of a node runs in its process's `context`, which tasks, timers and connections pass on. While the process is
frozen, its due callbacks are deferred: none runs, nothing is read or written, and fired timers run afterwards, in
order. Its sockets stay open, and peers may connect and write as far as the kernel buffers.

It costs nothing while no process of the loop is frozen. Timers of the loop itself are not deferred, so only clusters
with their own clock have processes.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from anabranch.clock.cluster_clock import CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable

Event = tuple[selectors.SelectorKey, int]
"""A selector's event: the socket, and its readiness."""
Pair = tuple[asyncio.Handle | None, asyncio.Handle | None]
"""asyncio's handles for a socket: reader and writer."""


NO_CLOCK: Final = "brokers can be frozen only in a cluster with a clock: clock.running(cluster), on a ClockLoop"


class CannotFreeze(RuntimeError):
    """The cluster cannot freeze brokers."""


class Process:
    """A context that can be frozen; created by `new`, in the context of the node."""

    def __init__(self, ice: FrozenWork) -> None:
        self._ice = ice
        self.context = contextvars.copy_context()
        """The context in which the node's code runs."""
        self.context.run(PROCESS.set, self)

    @classmethod
    def new(cls) -> Self | None:
        """Create a process for a cluster with a clock, whose timers can be deferred; None without a clock."""
        ice: FrozenWork | None = getattr(asyncio.get_running_loop(), "ice", None)
        return None if ice is None or CLOCK.get() is None else cls(ice)

    @property
    def frozen(self) -> bool:
        """Whether the process is frozen."""
        return self in self._ice.frozen

    def freeze(self) -> None:
        """Freeze the process behind the current callback."""
        self._ice.freeze(self)

    def thaw(self) -> None:
        """Resume the process; deferred callbacks run."""
        self._ice.thaw(self)

    def sibling(self) -> contextvars.Context:
        """A context with the same clock, for work that continues while the process is frozen."""
        context = self.context.copy()
        context.run(PROCESS.set, None)
        return context

    def drop_sockets(self) -> None:
        """Close the process's connections at once, as the kernel does for a killed process."""
        self._ice.drop_sockets(self)


PROCESS: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("which node", default=None)
"""The process of the running code; None outside nodes."""


class Loop(Protocol):
    """The internals of asyncio's loop that are used here."""

    _ready: deque[asyncio.Handle]
    _selector: selectors.BaseSelector
    _transports: Any

    def call_soon(self, callback: Any, *args: Any) -> asyncio.Handle:
        """See asyncio."""


class FrozenWork:
    """The deferred work of the frozen processes of one loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.frozen: dict[Process, list[asyncio.Handle]] = {}
        """Process -> its deferred callbacks, in order."""
        self.sockets: dict[int, tuple[int, Pair]] = {}
        """Sockets that are not watched: their event mask and handles."""

    def freeze(self, process: Process) -> None:
        """See Process."""
        if process in self.frozen:
            return
        self.frozen[process] = []
        ready = self._loop._ready
        for place, handle in enumerate(ready):  # the loop has counted the callbacks of this iteration
            if self._holds(handle) is process:
                self.frozen[process].append(handle)
                ready[place] = asyncio.Handle(_nothing, (), self._loop)  # type: ignore[arg-type]

    def thaw(self, process: Process) -> None:
        """See Process."""
        held = self.frozen.pop(process, None)
        if held is None:
            return
        for descriptor in list(self.sockets):
            self.listen(descriptor)  # sockets of other frozen processes are deferred again
        self._loop._ready.extend(held)

    def drop_sockets(self, process: Process) -> None:
        """See Process."""
        known = self._loop._selector.get_map().values()
        pairs = [(key.fd, key.data) for key in known] + [(fd, pair) for fd, (_, pair) in self.sockets.items()]
        for descriptor, pair in pairs:
            if any(_process_of(one) is process for one in pair or ()):
                transport = self._loop._transports.get(descriptor)
                if transport is not None:
                    transport.abort()

    def defer(self) -> None:
        """Remove the callbacks of frozen processes from the loop's next iteration."""
        ready = self._loop._ready
        if not any(self._holds(handle) for handle in ready):
            return
        running = list(ready)
        ready.clear()
        for handle in running:
            process = self._holds(handle)
            if process is None:
                ready.append(handle)
            else:
                self.frozen[process].append(handle)

    def without_frozen(self, events: Iterable[Event]) -> list[Event]:
        """Remove the events of frozen processes, and stop watching their sockets."""
        kept = []
        for key, mask in events:
            if any(self._holds(one) for one in key.data or ()):
                self.sockets[key.fd] = (key.events, key.data)
                self._loop._selector.unregister(key.fd)
            else:
                kept.append((key, mask))
        return kept

    def listen(self, descriptor: int) -> None:
        """Watch a socket again."""
        aside = self.sockets.pop(descriptor, None)
        if aside is not None:
            self._loop._selector.register(descriptor, *aside)

    def _holds(self, handle: asyncio.Handle | None) -> Process | None:
        process = _process_of(handle)
        return process if process in self.frozen else None


def _process_of(handle: asyncio.Handle | None) -> Process | None:
    context: contextvars.Context | None = getattr(handle, "_context", None)  # None for a cancelled handle
    return None if context is None else context.get(PROCESS)


def _nothing() -> None:
    """The placeholder for a deferred callback."""


def outside() -> contextvars.Context:
    """The current context without a process: actions on a node continue while it is frozen."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, None)
    return context
