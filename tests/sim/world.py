"""The simulated world without a cluster: a client and a server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.loop import Process, SimLoop
from tests.sim.network import SimNetwork
from tests.sim.zookeeper import SimZooKeeper


class World:
    def __init__(self, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.loop = SimLoop(self.rng)
        self.network = SimNetwork(self.loop, self.rng)
        self.zookeeper = SimZooKeeper(self.loop, self.rng)
        self.server, self.client = Process("server"), Process("client")
        self.heard: list[Any] = []

    def run(self, story: Callable[[World], Coroutine[Any, Any, Any]]) -> World:
        self.loop.run(story(self))
        assert self.loop.failures == []
        return self

    async def connected(self) -> Any:
        """A client's transport to a server that answers in capitals."""
        world = self

        class Capitals(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                self.transport.write(data.upper())

        class Listens(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                world.heard.append(data)

            def connection_lost(self, error: Exception | None) -> None:
                world.heard.append(error)

        async def listen() -> int:
            server = await asyncio.get_running_loop().create_server(Capitals, "server", 0)
            return int(server.sockets[0].getsockname()[1])

        async def connect(port: int) -> Any:
            transport, _ = await asyncio.get_running_loop().create_connection(Listens, "server", port)
            return transport

        self.port = await self.loop.spawn(self.server, listen())
        return await self.loop.spawn(self.client, connect(self.port))

    def said(self) -> bytes:
        return b"".join(one for one in self.heard if isinstance(one, bytes))


def simulated(story: Callable[[World], Coroutine[Any, Any, Any]]) -> Callable[[], None]:
    """Make a test of a story in a world of its own."""

    def test() -> None:
        World().run(story)

    return test
