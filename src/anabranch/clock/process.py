"""One node among others on a loop, which can be stopped in the middle of what it does, as SIGSTOP stops a process.

Everything that a node does runs in its process's `context`, which tasks, timers and connections hand on to what they
start. While it is frozen, what of it is due is put aside: no callback runs, nothing is read or written, and timers
that ring are heard afterwards, in their order. Its sockets stay open, and others may connect and write to it as far as
the kernel has room.

It costs nothing while no process of a loop is frozen. Timers that a loop has for all are not put aside: only clusters
with a clock of their own have processes.
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
"""What a selector tells: whose socket, and what it is ready for."""
Pair = tuple[asyncio.Handle | None, asyncio.Handle | None]
"""What asyncio keeps of a socket: whom to tell that it can be read, and whom that it can be written."""


class Process:
    """What can be frozen; made by `new`, in the context of who is to run in it."""

    def __init__(self, ice: FrozenWork) -> None:
        self._ice = ice
        self.context = contextvars.copy_context()
        """What of it runs in."""
        self.context.run(PROCESS.set, self)

    @classmethod
    def new(cls) -> Self | None:
        """A process of a cluster that has a clock, whose timers can wait; None where there is none."""
        ice: FrozenWork | None = getattr(asyncio.get_running_loop(), "ice", None)
        return None if ice is None or CLOCK.get() is None else cls(ice)

    @property
    def frozen(self) -> bool:
        """Whether it is."""
        return self in self._ice.frozen

    def freeze(self) -> None:
        """Nothing of it goes on behind the callback that runs now."""
        self._ice.freeze(self)

    def thaw(self) -> None:
        """It goes on where it was, and hears of all that came meanwhile."""
        self._ice.thaw(self)

    def sibling(self) -> contextvars.Context:
        """Its surroundings, such as its clock, for what goes on while it is frozen."""
        context = self.context.copy()
        context.run(PROCESS.set, None)
        return context

    def drop_sockets(self) -> None:
        """Close its connections at once, as a kernel does whose process has died."""
        self._ice.drop_sockets(self)


PROCESS: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("which node", default=None)
"""Whose code runs; None for what is no node's."""


class Loop(Protocol):
    """The loop, as far as it is looked into."""

    _ready: deque[asyncio.Handle]
    _selector: selectors.BaseSelector
    _transports: Any

    def call_soon(self, callback: Any, *args: Any) -> asyncio.Handle:
        """See asyncio."""


class FrozenWork:
    """What of the frozen processes of one loop is put aside."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.frozen: dict[Process, list[asyncio.Handle]] = {}
        """Each with the callbacks that it will hear of, in their order."""
        self.sockets: dict[int, tuple[int, Pair]] = {}
        """Those that are not listened to meanwhile: what for they were, and who is to be told."""

    def freeze(self, process: Process) -> None:
        """See Process."""
        if process in self.frozen:
            return
        self.frozen[process] = []
        ready = self._loop._ready
        for place, handle in enumerate(ready):  # the loop has counted how many it is about to run
            if self._holds(handle) is process:
                self.frozen[process].append(handle)
                ready[place] = asyncio.Handle(_nothing, (), self._loop)  # type: ignore[arg-type]

    def thaw(self, process: Process) -> None:
        """See Process."""
        held = self.frozen.pop(process, None)
        if held is None:
            return
        for descriptor in list(self.sockets):
            self.listen(descriptor)  # those of others are put aside anew
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
        """Take out of what the loop is about to run what belongs to frozen processes."""
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
        """What sockets tell those that run; the sockets of the others are not listened to any more."""
        heard = []
        for key, mask in events:
            if any(self._holds(one) for one in key.data or ()):
                self.sockets[key.fd] = (key.events, key.data)
                self._loop._selector.unregister(key.fd)
            else:
                heard.append((key, mask))
        return heard

    def listen(self, descriptor: int) -> None:
        """Listen to a socket again: its process goes on, or somebody wants something of it."""
        aside = self.sockets.pop(descriptor, None)
        if aside is not None:
            self._loop._selector.register(descriptor, *aside)

    def _holds(self, handle: asyncio.Handle | None) -> Process | None:
        process = _process_of(handle)
        return process if process in self.frozen else None


def _process_of(handle: asyncio.Handle | None) -> Process | None:
    context: contextvars.Context | None = getattr(handle, "_context", None)  # that of a cancelled one is None
    return None if context is None else context.get(PROCESS)


def _nothing() -> None:
    """What stands in the place of a callback that was put aside."""


def outside() -> contextvars.Context:
    """The present context, as no process: what is done to a node from there goes on while it is frozen."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, None)
    return context
