"""Two ZooKeepers whose sessions can be cut, restored and expired: the in-memory one and a real one.

The real world's sessions connect through a cable: a TCP relay that can be cut while the server lives on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kazoo.client import KazooClient

from anabranch.controller.zk.kazoo_session import KazooSession, open_kazoo
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import (
    SessionEvent,
    ZkError,
    ZkSession,
)

T = TypeVar("T")
PATIENCE_S = 60.0


class World(Protocol):
    """A ZooKeeper and the power to make its sessions suffer."""

    async def connect(self, session_timeout_ms: int = 30_000) -> ZkSession: ...

    async def expire(self, session: ZkSession) -> None: ...

    async def suspend(self, session: ZkSession) -> None: ...

    async def resume(self, session: ZkSession) -> None: ...

    async def lose_answer(self, session: ZkSession, request: Coroutine[Any, Any, T], done: Awaitable[None]) -> T:
        """Make the request, cut the session once `done`, and let the request end."""
        ...


class MemoryWorld:
    """The in-process server, which can do all of it by itself."""

    def __init__(self) -> None:
        self._server = MemoryZooKeeper()

    async def connect(self, session_timeout_ms: int = 30_000) -> ZkSession:
        return await self._server.connect(session_timeout_ms)

    async def expire(self, session: ZkSession) -> None:
        self._server.expire(memory(session))

    async def suspend(self, session: ZkSession) -> None:
        memory(session).lose_connection()

    async def resume(self, session: ZkSession) -> None:
        memory(session).reconnect()

    async def lose_answer(self, session: ZkSession, request: Coroutine[Any, Any, T], done: Awaitable[None]) -> T:
        task = asyncio.create_task(request)
        await asyncio.sleep(0)
        memory(session).lose_connection(carry_out=True)
        await done
        return await task


def memory(session: ZkSession) -> MemorySession:
    assert isinstance(session, MemorySession)
    return session


class Cable:
    """A TCP relay to the server that can be cut, restored, and made to drop responses."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._swallow = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def mend(self) -> None:
        self._swallow = False
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        if self._pumps:
            await asyncio.wait(self._pumps)

    def swallow_answers(self) -> None:
        self._swallow = True

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, up_writer}
        for source, sink, answers in ((reader, up_writer, False), (up_reader, writer, True)):
            pump = asyncio.create_task(self._pump(source, sink, answers=answers))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if not (answers and self._swallow):
                    sink.write(data)
        sink.close()
        self._writers.discard(sink)


async def expire_session(session: KazooSession, address: str) -> None:
    """Close a session from a second client that takes it over: for its owner it has expired."""
    second = KazooClient(address, client_id=session.credentials, timeout=10)
    loop = asyncio.get_running_loop()
    for step in (partial(second.start, PATIENCE_S), second.stop, second.close):
        await loop.run_in_executor(None, step)


class RealWorld:
    """The real server behind one cable per session."""

    def __init__(self, hosts: str) -> None:
        address, _, self._chroot = hosts.partition("/")
        self._port = int(address.rpartition(":")[2])
        self._cables: dict[int, Cable] = {}
        self._sessions: list[ZkSession] = []

    async def connect(self, session_timeout_ms: int = 30_000) -> ZkSession:
        cable = Cable(self._port)
        await cable.mend()
        hosts = f"127.0.0.1:{cable.port}/{self._chroot}"
        session = await open_kazoo(hosts, session_timeout_ms=session_timeout_ms, connect_timeout_ms=60_000)
        self._sessions.append(session)
        self._cables[session.session_id] = cable
        return session

    async def expire(self, session: ZkSession) -> None:
        """Close the session from a second client."""
        assert isinstance(session, KazooSession)
        await expire_session(session, f"127.0.0.1:{self._port}")

    async def suspend(self, session: ZkSession) -> None:
        events = Seen[SessionEvent]()
        session.on_session(events)
        await self._cables[session.session_id].cut()
        await events.until(SessionEvent.SUSPENDED)

    async def resume(self, session: ZkSession) -> None:
        await self._cables[session.session_id].mend()

    async def lose_answer(self, session: ZkSession, request: Coroutine[Any, Any, T], done: Awaitable[None]) -> T:
        self._cables[session.session_id].swallow_answers()
        task = asyncio.create_task(request)
        await done
        await self.suspend(session)
        return await task

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()
        for cable in self._cables.values():
            await cable.cut()


@contextlib.asynccontextmanager
async def open_world(hosts: str | None) -> AsyncIterator[World]:
    if hosts is None:
        yield MemoryWorld()
        return
    world = RealWorld(hosts)
    try:
        yield world
    finally:
        await world.close()


class Seen(list[T], Generic[T]):
    """A callback that remembers its events; as a callback it is itself and no other."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def __call__(self, event: T) -> None:
        self.append(event)
        self._news.set()

    async def until(self, event: T) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while event not in self:
                self._news.clear()
                await self._news.wait()


async def answer_of(call: Awaitable[object]) -> object:
    """The answer or the ZkError of a call."""
    try:
        return await call
    except ZkError as error:
        return type(error)


async def until_visible(zk: ZkSession, path: str) -> None:
    """Wait until this session sees the znode. All watches for earlier changes have been called by then."""
    async with asyncio.timeout(PATIENCE_S):
        while await zk.exists(path) is None:
            pass
