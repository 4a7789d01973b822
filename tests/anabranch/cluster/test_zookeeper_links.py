"""Links of nodes to ZooKeeper: a cut is of one node, of its open connections as of new ones, and it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.cluster.zookeeper_links import ZooKeeperLinks

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echo_server() -> AsyncIterator[str]:
    """A server that sends back what it gets, in place of ZooKeeper; returns its address."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def open_first(hosts: str) -> Streams:
    """A connection to the first server of a connect string."""
    host, _, port = hosts.partition("/")[0].split(",")[0].rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def answers(streams: Streams) -> bool:
    """Whether what is sent comes back; False when the connection is lost."""
    reader, writer = streams
    try:
        writer.write(b"ruok")
        return await reader.readexactly(4) == b"ruok"
    except (OSError, asyncio.IncompleteReadError):
        return False


async def test_cut_node_loses_its_connections_and_gets_no_new_ones_until_it_is_healed() -> None:
    async with asyncio.timeout(30), echo_server() as address:
        links = ZooKeeperLinks(address)
        one, other = await links.open(1), await links.open(2)
        opened = [await open_first(hosts) for hosts in (one, other)]
        assert [await answers(streams) for streams in opened] == [True, True]
        links.cut(1)
        links.cut(1)  # it is cut already
        assert (links.is_cut(1), links.is_cut(2)) == (True, False)
        assert [await answers(streams) for streams in opened] == [False, True]
        opened += [await open_first(hosts) for hosts in (one, other)]
        assert [await answers(streams) for streams in opened[2:]] == [False, True]
        links.heal(1)
        opened.append(await open_first(one))
        assert not links.is_cut(1) and await answers(opened[-1])
        links.cut(2)
        links.heal_all()
        opened.append(await open_first(other))
        assert await answers(opened[-1])
        await links.close()
        assert not await answers(opened[-1])
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("chroot", ["", "/a/b"])
async def test_connect_string_of_a_node_has_a_port_for_each_server_and_the_chroot(chroot: str) -> None:
    links = ZooKeeperLinks(f"127.0.0.1:1, localhost:2,[::1]:3{chroot}")
    hosts, slash, path = (await links.open(1)).partition("/")
    assert len({one.partition("127.0.0.1:")[2] for one in hosts.split(",")} - {""}) == 3
    assert slash + path == chroot
    await links.close()


async def test_server_without_a_port_has_zookeepers() -> None:
    links = ZooKeeperLinks("one,[::1],two:1")
    assert links.servers == (("one", 2181), ("::1", 2181), ("two", 1))
