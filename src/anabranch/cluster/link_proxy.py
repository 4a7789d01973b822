"""A TCP proxy between nodes and ZooKeeper that injects link faults.

Each port belongs to one directed link: it has a source and a target. A fault applies to all connections of its link.

    cut    resets the connections and refuses new ones
    drop   nothing arrives, connections stay open: as when packets are lost, what is under way arrives after the end
    delay  everything arrives later, in order
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["cut", "drop", "delay"]
CHUNK_BYTES: Final = 65536
QUEUE_CHUNKS: Final = 256


@dataclass(eq=False, slots=True)
class LinkFault:
    """A fault of a directed link, until it is ended. `hits` counts what it affected; 0 means that it had no effect."""

    kind: Kind
    source: str
    target: str
    delay_s: float = 0.0
    hits: int = 0

    def __str__(self) -> str:
        delay = f" {self.delay_s:g} s" if self.kind == "delay" else ""
        return f"{self.kind} {self.source} -> {self.target}{delay}"

    def applies(self, link: Link) -> bool:
        """Whether the fault affects this connection."""
        return (self.source, self.target) == (link.source, link.target)


@dataclass(eq=False, slots=True)
class Link:
    """One connection through the proxy."""

    source: str
    target: str
    writers: tuple[asyncio.StreamWriter, ...]

    def reset(self) -> None:
        """Reset both sides at once, as a failed host would."""
        for writer in self.writers:
            writer.transport.abort()


@dataclass(eq=False)
class Proxy:
    """All ports, connections and active faults. `async with` closes everything at its end."""

    host: str = "127.0.0.1"
    faults: list[LinkFault] = field(default_factory=list)
    links: set[Link] = field(default_factory=set)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self, source: str, target: str, to: tuple[str, int]) -> int:
        """Listen for the connections of a link, and forward them to the address `to`. Returns the port."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                far_reader, far_writer = await asyncio.open_connection(*to)
                link = Link(source, target, (writer, far_writer))
                try:
                    await self._forward(link, reader, far_reader)
                finally:
                    link.reset()
            writer.transport.abort()

        server = await asyncio.start_server(serve, self.host, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def begin(self, fault: LinkFault) -> LinkFault:
        """Begin a fault. Returns it."""
        self.faults.append(fault)
        if fault.kind == "cut":
            for link in [link for link in self.links if fault.applies(link)]:
                fault.hits += 1
                link.reset()
        self._wake()
        return fault

    def end(self, fault: LinkFault) -> None:
        """End a fault; what it stopped continues."""
        if fault in self.faults:
            self.faults.remove(fault)
            self._wake()

    async def close(self) -> None:
        """Reset everything and stop listening."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Proxy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- one connection

    async def _forward(self, link: Link, reader: asyncio.StreamReader, far_reader: asyncio.StreamReader) -> None:
        """Forward both directions until one side ends the connection, unless the link is cut."""
        if cuts := [one for one in self.faults if one.kind == "cut" and one.applies(link)]:
            for one in cuts:
                one.hits += 1
            return
        near_writer, far_writer = link.writers
        self.links.add(link)
        pumps = [
            asyncio.create_task(self._pump(link, reader, far_writer)),
            asyncio.create_task(self._pump(link, far_reader, near_writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.links.discard(link)

    async def _pump(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction's traffic: each piece gets a due time, and leaves then, in order."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(QUEUE_CHUNKS)

        async def take_in() -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(CHUNK_BYTES):
                    await queue.put((loop.time() + self._delay_s(link), data))
            await queue.put(None)

        feeder = asyncio.create_task(take_in())
        try:
            while (item := await queue.get()) is not None:
                due_s, data = item
                if due_s > loop.time():
                    await asyncio.sleep(due_s - loop.time())
                await self._pass(link)
                writer.write(data)
                await writer.drain()
        finally:
            feeder.cancel()

    def _delay_s(self, link: Link) -> float:
        total = 0.0
        for one in self.faults:
            if one.kind == "delay" and one.applies(link):
                one.hits += 1
                total += one.delay_s
        return total

    async def _pass(self, link: Link) -> None:
        """Wait until no fault drops the traffic of a link."""
        counted: set[int] = set()
        while True:
            changed = self._changed
            drops = [one for one in self.faults if one.kind == "drop" and one.applies(link)]
            if not drops:
                return
            for one in drops:
                if id(one) not in counted:
                    counted.add(id(one))
                    one.hits += 1
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
