"""ZooKeeper in this process: the whole service of a single-process cluster, without Java and without a socket.

It has the semantics of a real ensemble: one total order of transactions, data versions, ephemerals owned by sessions,
sequence suffixes, one-shot watches, all-or-nothing `multi`, sessions that are suspended, resumed and expired. Left out:
ACLs, quotas, containers, TTLs, persistence.

A request is executed one loop iteration after its call, like a message to a server: callers cannot rely on a result
without yielding, and the request of a cancelled caller is still executed. A watch fires before the new data is visible,
because a write posts its watches at once, and every result is posted after it was computed. A slow connection delays
both directions, and keeps these orders.

The server expires a suspended session after its timeout, while its client learns of that only when it reconnects
(`resume`): in between it believes that it holds locks, exactly as a partitioned client does.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import enum
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from anabranch.controller.zk.line import Line
from anabranch.controller.zk.session import (
    ANY_VERSION,
    ConnectionLoss,
    Create,
    Delete,
    Op,
    SessionCallback,
    SessionEvent,
    SessionExpired,
    Set,
    Stat,
    WatchCallback,
    WatchEvent,
    ZkError,
    ZkSession,
)
from anabranch.controller.zk.sizes import check_multi, check_write
from anabranch.controller.zk.tree import ZnodeTree
from anabranch.controller.zk.watch_manager import WatchManager

T = TypeVar("T")


class Link(enum.Enum):
    """The state of a client's connection. Only CONNECTED carries requests; EXPIRED and CLOSED are final."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


OVER = (Link.EXPIRED, Link.CLOSED)


class MemoryZooKeeper:
    """The ZooKeeper service. Everything runs on the loop of its callers; it needs no start or stop.

    Args:
        tree: The znodes at the start; no session owns one.
    """

    def __init__(self, tree: ZnodeTree | None = None) -> None:
        self.tree = ZnodeTree() if tree is None else tree
        self.watches: WatchManager[tuple[MemorySession, WatchCallback]] = WatchManager()
        self._sessions: dict[int, MemorySession] = {}
        self._last_session_id = 0

    async def connect(self, session_timeout_ms: int = 18000) -> MemorySession:
        """Open a session."""
        self._last_session_id += 1
        session = MemorySession(self, self._last_session_id, session_timeout_ms)
        self._sessions[session.session_id] = session
        return session

    def expire(self, session: MemorySession) -> None:
        """Expire the session in the server; its client learns it when it is connected."""
        connected = session.link is Link.CONNECTED
        if connected:
            session.lose_connection()
        self.end_session(session)
        if connected:
            session.reconnect()

    def holds(self, session: MemorySession) -> bool:
        """Whether the server counts the session as alive."""
        return session.session_id in self._sessions

    def end_session(self, session: MemorySession) -> None:
        """Remove the session: drop its watches and delete its ephemerals in one transaction."""
        if self._sessions.pop(session.session_id, None) is None:
            return
        session.drop_answers(self.drop_watches(session))
        doomed = self.tree.owned_by(session.session_id)
        if doomed:
            self.write(partial(self.tree.perform, session.session_id, [Delete(path) for path in doomed]))

    def write(self, apply: Callable[[], T]) -> T:
        """Run a transaction and post its watches."""
        result, changes = self.tree.transact(apply)
        for change in changes:
            self._fire(change)
        return result

    def drop_watches(self, session: MemorySession) -> list[WatchCallback]:
        """Remove all watches of a session and return their callbacks."""
        return [callback for _, callback in self.watches.remove(lambda watcher: watcher[0] is session)]

    def _fire(self, change: WatchEvent) -> None:
        for session, callback in self.watches.trigger(change):
            session.notify(callback, change)


class MemorySession(ZkSession):
    """The client side of a session (see `ZkSession`)."""

    def __init__(self, server: MemoryZooKeeper, session_id: int, timeout_ms: int) -> None:
        self._server = server
        self._id = session_id
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        """The context of the session's owner, in which its callbacks run."""
        self._listeners: list[SessionCallback] = []
        self._sent: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self._to_server = Line(self._loop)
        self._to_client = Line(self._loop)
        self._expiry: asyncio.TimerHandle | None = None
        self._missed: list[WatchCallback] = []
        self.link = Link.CONNECTED

    def __repr__(self) -> str:
        return f"<memory session {self._id} {self.link.value}>"

    @property
    def session_id(self) -> int:
        """The `ephemeral_owner` of this session's ephemerals."""
        return self._id

    @property
    def is_held(self) -> bool:
        """Whether the server counts the session as alive."""
        return self._server.holds(self)

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """See ZkSession."""

        def read() -> tuple[bytes, Stat]:
            node = self._server.tree.node(path)  # raises before the watch is set, as ZooKeeper does
            if watch is not None:
                self._server.watches.watch_data(path, (self, watch))
            return node.data, node.stat()

        return await self._ask(read)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """See ZkSession."""

        def read() -> list[tuple[bytes, Stat] | None]:
            nodes = (self._server.tree.nodes.get(path) for path in paths)
            return [None if node is None else (node.data, node.stat()) for node in nodes]

        return await self._ask(read)

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """See ZkSession."""

        def read() -> list[str]:
            node = self._server.tree.node(path)
            if watch is not None:
                self._server.watches.watch_children(path, (self, watch))
            return node.children.copy()

        return await self._ask(read)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """See ZkSession."""

        def read() -> Stat | None:
            if watch is not None:
                self._server.watches.watch_data(path, (self, watch))
            node = self._server.tree.nodes.get(path)
            return None if node is None else node.stat()

        return await self._ask(read)

    async def sync(self) -> None:
        """See ZkSession."""
        await self._ask(lambda: None)

    async def create_with_stat(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> tuple[str, Stat]:
        """See ZkSession."""
        check_write(Create(path, data))
        tree = self._server.tree
        owner = self._id if ephemeral else 0

        def create() -> tuple[str, Stat]:
            if make_parents:
                tree.create_parents(path)
            created = tree.create(path, data, owner=owner, sequence=sequence)
            return created, tree.node(created).stat()

        return await self._write(create)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """See ZkSession."""
        check_write(Set(path, data))
        return await self._write(partial(self._server.tree.set, path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See ZkSession."""
        await self._write(partial(self._server.tree.delete, path, version))

    async def multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        """See ZkSession."""
        check_multi(ops)
        return await self._write(partial(self._server.tree.perform, self._id, tuple(ops)))

    def on_session(self, callback: SessionCallback) -> None:
        """See ZkSession."""
        self._listeners.append(callback)

    async def close(self) -> None:
        """See ZkSession."""
        if self.link not in OVER:
            self._end(Link.CLOSED, SessionEvent.CLOSED)
            self._server.end_session(self)

    async def _write(self, apply: Callable[[], T]) -> T:
        return await self._ask(partial(self._server.write, apply))

    async def _ask(self, request: Callable[[], T]) -> T:
        if self.link in OVER:
            raise SessionExpired
        future: asyncio.Future[T] = self._loop.create_future()
        self._sent.append((future, request))
        if self.link is Link.CONNECTED:
            self._to_server.post(self._serve)
        return await future

    def _serve(self) -> None:
        """Execute the oldest request, unless the connection broke since it was sent."""
        if not self._sent or self.link is not Link.CONNECTED:
            return
        future, request = self._sent.popleft()
        try:
            answer = request()
        except Exception as error:  # a bug is raised to the caller, which must not wait for ever
            self._respond(_fail, future, error)
        else:
            self._respond(_succeed, future, answer)

    def _respond(self, how: Callable[[asyncio.Future[Any], Any], None], future: asyncio.Future[Any], what: Any) -> None:
        if self._to_client.idle:
            how(future, what)
        else:
            self._to_client.post(how, future, what)

    def lose_connection(self, *, carry_out: bool = False) -> None:
        """Disconnect: pending requests raise ConnectionLoss, executed (response lost) or not; watches are lost."""
        if self.link is not Link.CONNECTED:
            return
        self.link = Link.SUSPENDED
        self._flush()
        while self._sent:
            future, request = self._sent.popleft()
            if carry_out:
                with contextlib.suppress(ZkError):
                    request()
            _fail(future, ConnectionLoss())
        self._publish(SessionEvent.SUSPENDED)
        for callback in self._server.drop_watches(self):
            self.notify(callback, WatchEvent(None, "lost"))
        self._expiry = self._loop.call_later(self._timeout_ms / 1000, self._server.end_session, self)

    def reconnect(self) -> None:
        """Reconnect: the session continues, or the client learns of its expiry."""
        if self.link is not Link.SUSPENDED:
            return
        if not self._server.holds(self):
            self._end(Link.EXPIRED, SessionEvent.EXPIRED)
            return
        self._stop_expiry()
        self.link = Link.CONNECTED
        self._publish(SessionEvent.CONNECTED)
        for _ in self._sent:
            self._to_server.post(self._serve, context=self._context)

    @property
    def delay_s(self) -> float:
        """By how much each direction is late."""
        return self._to_server.delay_s

    def slow_down(self, delay_s: float) -> None:
        """Delay the requests and responses of the client; 0 ends it, and lets what is under way arrive."""
        self._to_server.delay_s = self._to_client.delay_s = delay_s
        if not delay_s:
            self._flush()

    def _flush(self) -> None:
        """Deliver delayed requests and responses in their order."""
        self._to_client.flush()
        self._to_server.flush()

    def stall(self) -> None:
        """Freeze the client's process: it sends nothing, and its session expires after the timeout."""
        if self.link is Link.CONNECTED and self._expiry is None:
            self._expiry = self._loop.call_later(self._timeout_ms / 1000, self._server.end_session, self)

    def drop_answers(self, watches: Sequence[WatchCallback]) -> None:
        """End the session; a frozen client gets its watches when it resumes."""
        self._missed += watches

    def unstall(self) -> None:
        """Resume the client's process; it learns of an expiry meanwhile."""
        if self.link is not Link.CONNECTED:
            return
        self._stop_expiry()
        if not self._server.holds(self):
            for callback in self._missed:
                self.notify(callback, WatchEvent(None, "lost"))
            self.lose_connection()
            self.reconnect()

    def notify(self, callback: WatchCallback, event: WatchEvent) -> None:
        """Post a watch's event, in the order of events."""
        self._to_client.post(self._deliver, callback, event, context=self._context)

    def _deliver(self, callback: WatchCallback, event: WatchEvent) -> None:
        if self.link is not Link.CLOSED:
            callback(event)

    def _end(self, link: Link, event: SessionEvent) -> None:
        self.link = link
        self._flush()
        self._stop_expiry()
        while self._sent:
            future, _ = self._sent.popleft()
            _fail(future, SessionExpired())
        self._publish(event)

    def _publish(self, event: SessionEvent) -> None:
        for callback in self._listeners:
            self._loop.call_soon(callback, event, context=self._context)

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def _succeed(future: asyncio.Future[Any], answer: object) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
