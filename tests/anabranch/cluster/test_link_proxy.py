"""The proxy: senders and APIs are told apart, and each fault affects only its traffic."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from anabranch.cluster.link_proxy import LinkFault, Proxy, sender_of

PRODUCE, FETCH, ALTER_PARTITION = 0, 1, 56


def request(api_key: int, client_id: str | None, payload: bytes = b"") -> bytes:
    """A request as Kafka frames it: size, API, version, correlation id, client id."""
    name = b"" if client_id is None else client_id.encode()
    header = struct.pack(">hhih", api_key, 9, 1, -1 if client_id is None else len(name))
    return struct.pack(">i", len(header + name + payload)) + header + name + payload


@asynccontextmanager
async def echo_through(proxy: Proxy) -> AsyncIterator[Callable[[], Awaitable[Caller]]]:
    """A server that sends back what it gets, as node 2 behind the proxy."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with proxy:
        port = await proxy.listen("2", server.sockets[0].getsockname()[:2])

        async def call() -> Caller:
            return Caller(*await asyncio.open_connection("127.0.0.1", port))

        yield call
    server.close()


class Caller:
    """One connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, api_key: int, client_id: str, payload: bytes = b"?") -> bool:
        """Whether the echo comes back; False when the connection is lost."""
        message = request(api_key, client_id, payload)
        self.writer.write(message)
        try:
            return await self.reader.readexactly(len(message)) == message
        except (OSError, asyncio.IncompleteReadError):
            return False

    def close(self) -> None:
        self.writer.close()


@pytest.mark.parametrize(
    ("client_id", "sender"),
    [
        ("broker-1", "1"),
        ("broker-12-fetcher", "12"),
        ("controller-100", "100"),
        ("broker-x", "client"),
        ("my-broker-1", "client"),
        ("", "client"),
        (None, "client"),
    ],
)
def test_sender_is_identified_by_its_client_id(client_id: str | None, sender: str) -> None:
    assert sender_of(request(PRODUCE, client_id)) == sender
    assert sender_of(b"\0\0\0\1x") == "client"


async def test_cut_resets_its_link_and_refuses_connections_until_it_ends() -> None:
    proxy = Proxy()
    async with echo_through(proxy) as connect:
        one, other = await connect(), await connect()
        assert await one.ask(FETCH, "broker-1-fetcher") and await other.ask(PRODUCE, "client")
        fault = proxy.begin(LinkFault("cut", "1", "2"))
        assert not await one.ask(FETCH, "broker-1-fetcher")
        again = await connect()
        assert not await again.ask(FETCH, "broker-1-fetcher")
        assert fault.hits == 2
        assert await other.ask(PRODUCE, "client"), "another link"
        proxy.end(fault)
        last = await connect()
        assert await last.ask(FETCH, "broker-1-fetcher")
        for caller in (one, other, again, last):
            caller.close()


@pytest.mark.parametrize("direction", ["there", "back", "both"])
async def test_dropped_bytes_arrive_after_fault_ends(direction: str) -> None:
    proxy = Proxy()
    async with echo_through(proxy) as connect:
        caller = await connect()
        fault = proxy.begin(LinkFault("drop", direction=direction))  # type: ignore[arg-type]
        pending = asyncio.ensure_future(caller.ask(PRODUCE, "client"))
        while not fault.hits:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert not pending.done()
        assert proxy.heal() == 1
        assert await pending
        caller.close()


async def test_hold_delays_only_its_api_and_later_requests() -> None:
    proxy = Proxy()
    async with echo_through(proxy) as connect:
        caller, other = await connect(), await connect()
        held = proxy.begin(LinkFault("hold", "1", api_key=ALTER_PARTITION))
        assert await caller.ask(FETCH, "broker-1")
        pending = asyncio.ensure_future(caller.ask(ALTER_PARTITION, "broker-1"))
        while not held.hits:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert await other.ask(ALTER_PARTITION, "broker-3"), "another sender's passes"
        assert not pending.done()
        proxy.end(held)
        assert await pending
        caller.close()
        other.close()


async def test_held_request_arrives_after_its_sender_disconnects() -> None:
    arrived = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(65536):
            arrived.set()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with Proxy() as proxy:
        port = await proxy.listen("2", server.sockets[0].getsockname()[:2])
        held = proxy.begin(LinkFault("hold", api_key=ALTER_PARTITION))
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(ALTER_PARTITION, "broker-1"))
        while not held.hits:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        writer.close()
        await writer.wait_closed()
        proxy.end(held)
        async with asyncio.timeout(30):
            await arrived.wait()
    server.close()


async def test_delay_keeps_order_and_does_not_accumulate() -> None:
    loop = asyncio.get_running_loop()
    proxy = Proxy()
    async with echo_through(proxy) as connect:
        caller = await connect()
        assert await caller.ask(FETCH, "client")
        fault = proxy.begin(LinkFault("delay", direction="there", delay_s=0.2))
        start_s = loop.time()
        wanted = b"".join(request(FETCH, "client", bytes([number])) for number in range(200))
        caller.writer.write(wanted)
        assert await caller.reader.readexactly(len(wanted)) == wanted
        assert 0.2 <= loop.time() - start_s < 30, "two hundred requests are delayed side by side"
        assert fault.hits == 200
        caller.close()


def test_faults_describe_themselves() -> None:
    assert str(LinkFault("cut", "1", "2")) == "cut 1 -> 2"
    assert str(LinkFault("delay", "1", "*", "there", delay_s=0.5)) == "delay 1 -> * there 0.5 s"
    assert str(LinkFault("hold", "1", api_key=56)) == "hold 1 -> * api 56"
