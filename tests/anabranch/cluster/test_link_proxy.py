"""The proxy: each fault affects only its link, and what it stopped arrives after its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from anabranch.cluster.link_proxy import LinkFault, Proxy

SERVER = "zookeeper-1"
PATIENCE_S = 30


@asynccontextmanager
async def echo_through(proxy: Proxy) -> AsyncIterator[Callable[[str], Awaitable[Caller]]]:
    """A server that sends back what it gets; yields a function that connects to it as a node."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with asyncio.timeout(PATIENCE_S), proxy:
        to = server.sockets[0].getsockname()[:2]
        ports = {source: await proxy.listen(source, SERVER, to) for source in ("1", "2")}

        async def call(source: str) -> Caller:
            return Caller(*await asyncio.open_connection("127.0.0.1", ports[source]))

        yield call
    server.close()


class Caller:
    """One connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, message: bytes = b"ruok") -> bool:
        """Whether the echo comes back; False when the connection is lost."""
        self.writer.write(message)
        try:
            return await self.reader.readexactly(len(message)) == message
        except (OSError, asyncio.IncompleteReadError):
            return False

    def close(self) -> None:
        self.writer.close()


async def test_cut_resets_its_link_and_refuses_connections_until_it_ends() -> None:
    proxy = Proxy()
    async with echo_through(proxy) as connect:
        one, other = await connect("1"), await connect("2")
        assert await one.ask() and await other.ask()
        fault = proxy.begin(LinkFault("cut", "1", SERVER))
        assert not await one.ask()
        again = await connect("1")
        assert not await again.ask()
        assert fault.hits == 2
        assert await other.ask(), "another link"
        proxy.end(fault)
        last = await connect("1")
        assert await last.ask()
        for caller in (one, other, again, last):
            caller.close()


async def test_dropped_bytes_arrive_after_fault_ends() -> None:
    proxy = Proxy()
    async with echo_through(proxy) as connect:
        caller, other = await connect("1"), await connect("2")
        fault = proxy.begin(LinkFault("drop", "1", SERVER))
        pending = asyncio.ensure_future(caller.ask())
        while not fault.hits:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert await other.ask(), "another link"
        assert not pending.done()
        proxy.end(fault)
        assert await pending
        caller.close()
        other.close()


async def test_delay_keeps_order_and_does_not_accumulate() -> None:
    loop = asyncio.get_running_loop()
    proxy = Proxy()
    async with echo_through(proxy) as connect:
        caller = await connect("1")
        assert await caller.ask()
        fault = proxy.begin(LinkFault("delay", "1", SERVER, delay_s=0.1))
        start_s = loop.time()
        wanted = bytes(number % 256 for number in range(3_000_000))
        caller.writer.write(wanted)
        assert await caller.reader.readexactly(len(wanted)) == wanted
        took_s = loop.time() - start_s
        assert fault.hits > 40, "a fault counts each piece"
        assert 0.2 <= took_s < 0.1 * fault.hits, "pieces are delayed side by side, there and back"
        caller.close()


def test_faults_describe_themselves() -> None:
    assert str(LinkFault("cut", "1", SERVER)) == "cut 1 -> zookeeper-1"
    assert str(LinkFault("delay", "1", SERVER, delay_s=0.5)) == "delay 1 -> zookeeper-1 0.5 s"
