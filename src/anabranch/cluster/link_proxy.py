"""A TCP proxy between nodes, between clients and nodes, and between nodes and ZooKeeper, that injects link faults.

Every node has a port here and advertises it, so all traffic to the node passes. The sender is recognised by the client
id in Kafka's request header ("broker-2-fetcher" is node 2, "controller-100" is node 100, all others are "client"), or
is fixed for a port of a single node (its links to ZooKeeper). So a fault applies to a directed link, to one
direction of it, and, where requests are looked at, to a single API: "hold what broker 1 sends as AlterPartition".

    cut    resets the connections of a link and refuses new ones
    drop   nothing gets through, connections stay: as when packets are dropped, what is under way arrives after the end
    delay  everything arrives later, in order
    hold   requests of one API wait for the end of the fault, and what follows them on their connection too
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final, Literal

from anabranch.cluster.link_exchanges import Direction, LinkExchanges, RecentExchanges, client_id_of
from anabranch.protocol.framing import LENGTH_BYTES

Kind = Literal["cut", "drop", "delay", "hold"]
KINDS: Final[tuple[Kind, ...]] = ("cut", "drop", "delay", "hold")
ANYBODY: Final = "*"
CLIENT: Final = "client"
CHUNK_BYTES: Final = 65536
QUEUE_CHUNKS: Final = 256
NODE_NAMES: Final = re.compile(r"(?:broker|controller)-(\d+)(?:-fetcher)?")


@dataclass(eq=False, slots=True)
class LinkFault:
    """A fault of a directed link, until it is ended. `hits` counts what it affected; 0 means that it had no effect."""

    kind: Kind
    source: str = ANYBODY
    target: str = ANYBODY
    direction: Direction = "both"
    api_key: int | None = None
    delay_s: float = 0.0
    hits: int = 0

    def __str__(self) -> str:
        details = "".join(
            (
                f" {self.direction}" if self.direction != "both" else "",
                f" api {self.api_key}" if self.api_key is not None else "",
                f" {self.delay_s:g} s" if self.kind == "delay" else "",
            )
        )
        return f"{self.kind} {self.source} -> {self.target}{details}"

    def concerns(self, source: str, target: str) -> bool:
        """Whether the fault concerns this link."""
        return self.source in (ANYBODY, source) and self.target in (ANYBODY, target)

    def applies(self, link: Link, direction: Direction, api_key: int | None) -> bool:
        """Whether the fault affects this traffic."""
        return (
            self.concerns(link.source, link.target)
            and self.direction in ("both", direction)
            and (self.api_key is None or self.api_key == api_key)
        )


@dataclass(eq=False, slots=True)
class Link:
    """One connection through the proxy."""

    source: str
    target: str
    writers: tuple[asyncio.StreamWriter, ...] = ()
    exchanges: LinkExchanges | None = None

    def reset(self) -> None:
        """Reset both sides at once, as a failed host would."""
        for writer in self.writers:
            writer.transport.abort()


@dataclass(eq=False)
class Proxy:
    """All ports, links and active faults. `async with` closes everything at its end."""

    host: str = "127.0.0.1"
    faults: list[LinkFault] = field(default_factory=list)
    links: set[Link] = field(default_factory=set)
    exchanges: RecentExchanges = field(default_factory=RecentExchanges)
    """The last exchanges of consumers that are no nodes."""
    sources: dict[str, None] = field(default_factory=lambda: {ANYBODY: None, CLIENT: None})
    """The possible source names of a link."""
    targets: dict[str, None] = field(default_factory=lambda: {ANYBODY: None})
    _servers: list[asyncio.Server] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(
        self, target: str, to: tuple[str, int], *, port: int = 0, source: str = "", requests: bool = True
    ) -> int:
        """Listen on a port for the address `to`. Returns the port.

        `requests`: the traffic is Kafka's, so senders and APIs are parsed.
        """

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(Link(source or CLIENT, target), to, reader, writer, requests)
            writer.transport.abort()

        server = await asyncio.start_server(serve, self.host, port, limit=1 << 27)
        self._servers.append(server)
        self.targets[target] = None
        self.sources[source or (target if requests else CLIENT)] = None
        return int(server.sockets[0].getsockname()[1])

    def begin(self, fault: LinkFault) -> LinkFault:
        """Begin a fault. Returns it."""
        self.faults.append(fault)
        if fault.kind == "cut":
            for link in [link for link in self.links if fault.concerns(link.source, link.target)]:
                fault.hits += 1
                link.reset()
        self._wake()
        return fault

    def end(self, fault: LinkFault) -> None:
        """End a fault; held traffic continues."""
        if fault in self.faults:
            self.faults.remove(fault)
            self._wake()

    def heal(self) -> int:
        """End all faults. Returns their number."""
        count = len(self.faults)
        self.faults.clear()
        self._wake()
        return count

    def reset(self, source: str = ANYBODY, target: str = ANYBODY) -> int:
        """Reset the current connections of a link, which may reconnect at once. Returns their number."""
        concerned = [link for link in self.links if LinkFault("cut", source, target).concerns(link.source, link.target)]
        for link in concerned:
            link.reset()
        return len(concerned)

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

    async def _serve(
        self,
        link: Link,
        to: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        requests: bool,
    ) -> None:
        pieces = frames(reader) if requests else chunks(reader)
        first = await anext(pieces, None)
        if first is None:
            return
        if requests and link.source == CLIENT:
            link.source = sender_of(first[1])
        if self._cut(link):
            return
        far_reader, far_writer = await asyncio.open_connection(*to)
        if requests and link.source == CLIENT:
            link.exchanges = LinkExchanges(link.target, self.exchanges, asyncio.get_running_loop().time)
        link.writers = (writer, far_writer)
        self.links.add(link)
        try:
            there = asyncio.create_task(self._pump(link, "there", chained(first, pieces), far_writer))
            back = asyncio.create_task(self._pump(link, "back", chunks(far_reader), writer))
            try:
                await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
                # Pitfall: a held request is delivered even if its sender has given up meanwhile.
                if back.done() or not self._holding(link):
                    there.cancel()
                back.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
            finally:
                there.cancel()
                back.cancel()
        finally:
            self.links.discard(link)
            link.reset()
            if link.exchanges is not None:
                link.exchanges.ended()

    def _holding(self, link: Link) -> bool:
        return any(one.kind == "hold" and one.concerns(link.source, link.target) for one in self.faults)

    def _cut(self, link: Link) -> bool:
        cuts = [one for one in self.faults if one.kind == "cut" and one.concerns(link.source, link.target)]
        for one in cuts:
            one.hits += 1
        return bool(cuts)

    async def _pump(
        self,
        link: Link,
        direction: Direction,
        pieces: AsyncIterator[tuple[int | None, bytes]],
        writer: asyncio.StreamWriter,
    ) -> None:
        """Forward one direction's traffic: each piece gets a due time, and leaves then, in order."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, int | None, bytes] | None] = asyncio.Queue(QUEUE_CHUNKS)

        async def take_in() -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async for api_key, data in pieces:
                    await queue.put((loop.time() + self._delay(link, direction, api_key), api_key, data))
            await queue.put(None)

        feeder = asyncio.create_task(take_in())
        try:
            while (item := await queue.get()) is not None:
                due, api_key, data = item
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                await self._pass(link, direction, api_key)
                if link.exchanges is not None:
                    link.exchanges.record(direction, data)
                writer.write(data)
                await writer.drain()
        finally:
            feeder.cancel()

    def _delay(self, link: Link, direction: Direction, api_key: int | None) -> float:
        total = 0.0
        for one in self.faults:
            if one.kind == "delay" and one.applies(link, direction, api_key):
                one.hits += 1
                total += one.delay_s
        return total

    async def _pass(self, link: Link, direction: Direction, api_key: int | None) -> None:
        counted: set[int] = set()
        while True:
            changed = self._changed
            blocking = [
                one for one in self.faults if one.kind in ("drop", "hold") and one.applies(link, direction, api_key)
            ]
            if not blocking:
                return
            for one in blocking:
                if id(one) not in counted:
                    counted.add(id(one))
                    one.hits += 1
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int | None, bytes]]:
    """Yield the requests of a connection, each whole and with its API key."""
    while True:
        head = await reader.readexactly(4)
        body = await reader.readexactly(int.from_bytes(head, "big", signed=True))
        yield (int.from_bytes(body[:2], "big") if len(body) >= 2 else None), head + body


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int | None, bytes]]:
    """Yield the bytes of a connection as they arrive."""
    while data := await reader.read(CHUNK_BYTES):
        yield None, data


async def chained(
    first: tuple[int | None, bytes], rest: AsyncIterator[tuple[int | None, bytes]]
) -> AsyncIterator[tuple[int | None, bytes]]:
    """Yield one piece, then the others."""
    yield first
    async for piece in rest:
        yield piece


def sender_of(frame: bytes) -> str:
    """Return the sender of a request: a node's id as text, or "client"."""
    found = NODE_NAMES.fullmatch(client_id_of(frame[LENGTH_BYTES:]))
    return found[1] if found else CLIENT
