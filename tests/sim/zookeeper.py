"""ZooKeeper in a simulation: the in-memory server with delayed, failing links and failing hosts.

MemoryZooKeeper executes the requests. This module delays requests, responses and watches, and loses them. Each session
is first-in-first-out in both directions, and answers and watches share one queue, so a watch is delivered before any
data that was read after it, however late. A broken link loses a random part of the data in transit. The interesting
requests are those that are executed and whose response is lost.

`transactions` records every committed transaction in zxid order; checkers compare the metadata of brokers with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from anabranch.controller.zk.memory import OVER, Link, MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import (
    ConnectionLoss,
    SessionCallback,
    SessionEvent,
    SessionExpired,
    WatchCallback,
    WatchEvent,
    ZkError,
)
from tests.sim.loop import PROCESS, Process, SimLoop, outside

T = TypeVar("T")


class Change(NamedTuple):
    """One znode after one transaction; `data` None when it was deleted."""

    zxid: int
    at_s: float
    path: str
    kind: str
    data: bytes | None
    version: int
    session_id: int


class SimZooKeeper(MemoryZooKeeper):
    """The server. `on_change` gets every change, in order."""

    def __init__(self, loop: SimLoop, rng: random.Random, *, delay_ms: tuple[float, float] = (0.3, 4.0)) -> None:
        super().__init__()
        self.loop = loop
        self.rng = rng
        self.delay_ms = delay_ms
        self.watch_delay_ms = 0.0
        self.fired: Counter[str] = Counter()
        self.on_change: list[Callable[[Change], None]] = []
        self.writer = 0
        self.cut_off: dict[str, None] = {}
        self.clients: list[SimSession] = []

    async def connect(self, session_timeout_ms: int = 18000) -> MemorySession:
        """Open a session for the process that asks."""
        process = PROCESS.get()
        assert process is not None
        process.must_live()
        await asyncio.sleep(self.delay_s())
        if process.host in self.cut_off:
            raise ConnectionLoss("/")
        self._last_session_id += 1
        session = SimSession(self, self._last_session_id, session_timeout_ms, process)
        self._sessions[session.session_id] = session
        return session

    def sessions_of(self, host: str) -> list[SimSession]:
        """The sessions that the server counts as alive, of one host."""
        return [one for one in self._sessions.values() if isinstance(one, SimSession) and one.process.host == host]

    def delay_s(self) -> float:
        low, high = self.delay_ms
        return (low + (high - low) * self.rng.random() ** 3) / 1000

    def write(self, apply: Callable[[], T]) -> T:
        result, changes = self.tree.transact(apply)
        for change in changes:
            assert change.path is not None
            if self.on_change and change.kind != "children":
                node = self.tree.nodes.get(change.path)
                seen = Change(
                    self.tree.zxid,
                    self.loop.time(),
                    change.path,
                    change.kind,
                    None if node is None else node.data,
                    -1 if node is None else node.version,
                    self.writer,
                )
                for listener in self.on_change:
                    listener(seen)
        for change in changes:
            self._fire(change)
        return result

    # --- faults

    def cut(self, host: str) -> None:
        """The host cannot reach the server until `mend`; its sessions are suspended, and expire in time."""
        self.cut_off[host] = None
        for session in self.sessions_of(host):
            session.lose_connection(carry_out=self.rng.random() < 0.5)
            self.fired["session suspended"] += 1

    def mend(self, host: str) -> None:
        """The host reaches the server again."""
        self.cut_off.pop(host, None)
        for session in self._open():
            if session.process.host == host:
                session.reconnect()

    def _open(self) -> list[SimSession]:
        self.clients = [one for one in self.clients if one.link not in OVER]
        return self.clients

    def host_died(self, process: Process) -> None:
        """These sessions get no more pings."""
        for session in self.sessions_of(process.host):
            if session.process is process:
                session.die()

    def prolong(self, process: Process, lives_s: float) -> None:
        """Its sessions live so long without their client."""
        for session in self.sessions_of(process.host):
            if session.process is process:
                session.prolong(lives_s)

    def host_froze(self, process: Process) -> None:
        """As `host_died`, unless it is thawed in time."""
        for session in self.sessions_of(process.host):
            if session.process is process:
                session.freeze()

    def host_thawed(self, process: Process) -> None:
        """The client pings again, or learns that it is too late."""
        for session in self._open():
            if session.process is process:
                session.thaw()


class SimSession(MemorySession):
    """A client's end, with a wire between it and the server."""

    def __init__(self, server: SimZooKeeper, session_id: int, timeout_ms: int, process: Process) -> None:
        super().__init__(server, session_id, timeout_ms)
        self.process = process
        self.context = process.context.copy()
        self._zk = server
        self._sim: SimLoop = server.loop
        self._down: deque[tuple[str, Any, Any]] = deque()
        self._up_due = 0.0
        self._down_due = 0.0
        self._connection = 0
        self._silence: asyncio.TimerHandle | None = None
        self._orphaned: list[WatchCallback] = []
        server.clients.append(self)

    # --- requests

    async def _ask(self, request: Callable[[], T]) -> T:
        self.process.must_live()
        if self.link in OVER:
            raise SessionExpired
        future: asyncio.Future[T] = self._sim.create_future()
        self._sent.append((future, request))
        if self.link is Link.CONNECTED:
            self._travel()
        return await future

    def _travel(self) -> None:
        self._up_due = max(self._up_due, self._sim.time() + self._zk.delay_s())
        self._sim.call_at(self._up_due, self._arrive, self._connection, context=outside())

    def _arrive(self, connection: int) -> None:
        if connection != self._connection or self.link is not Link.CONNECTED or not self._sent:
            return
        future, request = self._sent.popleft()
        self._zk.writer = self._id
        try:
            answer: tuple[bool, Any] = (True, request())
        except Exception as error:
            answer = (False, error)
        self._zk.writer = 0
        self._send_down("answer", future, answer)

    def _send_down(self, kind: str, target: Any, content: Any) -> None:
        self._down.append((kind, target, content))
        delay_s = self._zk.delay_s()
        if kind == "watch" and self._zk.watch_delay_ms:
            delay_s += self._zk.watch_delay_ms * self._zk.rng.random() / 1000
            self._zk.fired["watch delayed"] += 1
        self._down_due = max(self._down_due, self._sim.time() + delay_s)
        self._sim.call_at(self._down_due, self._receive, self._connection, context=self.context)

    def _receive(self, connection: int) -> None:
        if connection != self._connection or not self._down:
            return
        kind, target, content = self._down.popleft()
        if kind == "watch":
            self._deliver(target, content)
        elif not target.done():
            succeeded, value = content
            if succeeded:
                target.set_result(value)
            else:
                target.set_exception(value)

    def notify(self, callback: WatchCallback, event: WatchEvent) -> None:
        if self.link is Link.CONNECTED:
            self._send_down("watch", callback, event)
        else:
            self._sim.call_soon(self._deliver, callback, event, context=self.context)

    # --- the connection

    def lose_connection(self, *, carry_out: bool = False) -> None:
        if self.link is not Link.CONNECTED:
            return
        self.link = Link.SUSPENDED
        self._connection += 1
        lost: list[asyncio.Future[Any]] = []
        watching: list[WatchCallback] = []
        for kind, target, _ in self._down:
            if kind == "answer":
                lost.append(target)
                self._zk.fired["answer lost"] += 1
            else:
                watching.append(target)
        self._down.clear()
        while self._sent:
            future, request = self._sent.popleft()
            if carry_out:
                self._zk.writer = self._id
                with contextlib.suppress(ZkError):
                    request()
                self._zk.writer = 0
                self._zk.fired["carried out unheard"] += 1
            lost.append(future)
        for future in lost:
            self._sim.call_soon(_fail, future, ConnectionLoss(), context=self.context)
        self._publish(SessionEvent.SUSPENDED)
        orphaned, self._orphaned = self._orphaned, []
        for callback in [*watching, *orphaned, *self._zk.drop_watches(self)]:
            self._sim.call_soon(self._deliver, callback, WatchEvent(None, "lost"), context=self.context)
        self._expiry = self._sim.call_later(self._timeout_ms / 1000, self._zk.end_session, self, context=outside())

    def reconnect(self) -> None:
        if self.link is not Link.SUSPENDED or not self.process.alive:
            return
        if not self._server.holds(self):
            self._end(Link.EXPIRED, SessionEvent.EXPIRED)
            return
        self._stop_expiry()
        self.link = Link.CONNECTED
        self._publish(SessionEvent.CONNECTED)
        for _ in self._sent:
            self._travel()

    async def close(self) -> None:
        self.process.must_live()
        await super().close()

    def _end(self, link: Link, event: SessionEvent) -> None:
        self.link = link
        self._connection += 1
        self._stop_expiry()
        lost = [target for kind, target, _ in self._down if kind == "answer"]
        lost += [future for future, _ in self._sent]
        self._down.clear()
        self._sent.clear()
        for future in lost:
            self._sim.call_soon(_fail, future, SessionExpired(), context=self.context)
        self._publish(event)

    def _publish(self, event: SessionEvent) -> None:
        callbacks: list[SessionCallback] = list(self._listeners)
        for callback in callbacks:
            self._sim.call_soon(callback, event, context=self.context)

    # --- the client's host

    def prolong(self, lives_s: float) -> None:
        self._timeout_ms = round(lives_s * 1000)

    def die(self) -> None:
        """What was sent may still arrive; then only silence."""
        if self.link in OVER:
            return
        if self.link is Link.CONNECTED:
            for _, request in list(self._sent)[: self._zk.rng.randint(0, len(self._sent))]:
                with contextlib.suppress(ZkError):
                    self._zk.writer = self._id
                    request()
                self._zk.fired["carried out for the dead"] += 1
            self._zk.writer = 0
            self._connection += 1
            self._sent.clear()
            self._down.clear()
            self._zk.drop_watches(self)
            self._sim.call_later(self._timeout_ms / 1000, self._zk.end_session, self, context=outside())
        self.link = Link.CLOSED

    def freeze(self) -> None:
        if self.link is Link.CONNECTED and self._silence is None:
            self._silence = self._sim.call_later(self._timeout_ms / 1000, self._expire_unheard, context=outside())

    def _expire_unheard(self) -> None:
        self._orphaned = self._zk.drop_watches(self)
        self._zk.end_session(self)

    def thaw(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if self.link is Link.CONNECTED and not self._server.holds(self):
            self._zk.fired["session expired while frozen"] += 1
            self.lose_connection(carry_out=False)
            self.reconnect()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
