"""A ZooKeeper ensemble of several real servers on this machine, to test which failures a quorum survives.

Each server is a `LocalZooKeeper`. It can be killed and started again, with its port and its data. Three servers stay in
service as long as two run.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from anabranch.cluster.local_zookeeper import LocalZooKeeper
from anabranch.cluster.zookeeper import ZooKeeperUnavailable
from anabranch.runtime.sockets import free_ports
from anabranch.runtime.startable import Startable

HOST: Final = "127.0.0.1"
START_TRIES: Final = 3


class LocalEnsemble(Startable):
    """`size` servers, numbered from 1; `async with` starts and stops them."""

    def __init__(self, directory: str | Path, size: int = 3) -> None:
        self.servers: dict[int, LocalZooKeeper] = {}
        self._directory = Path(directory)
        self._size = size

    @property
    def hosts(self) -> str:
        """The connect string of all servers: "HOST:PORT,HOST:PORT"."""
        return ",".join(server.hosts for server in self.servers.values())

    async def start(self) -> None:
        """Start all servers and wait until each is in service. A port that was taken meanwhile is replaced."""
        for last_try in (*[False] * (START_TRIES - 1), True):
            self._place()
            try:
                for server in self.servers.values():
                    server.launch()
                await asyncio.gather(*(server.wait_ready() for server in self.servers.values()))
            except ZooKeeperUnavailable:
                await self.stop()
                if last_try:
                    raise
            else:
                return

    def _place(self) -> None:
        numbers = range(1, self._size + 1)
        ports = free_ports(HOST, 3 * self._size)
        quorum = {number: f"{HOST}:{ports[3 * number - 2]}:{ports[3 * number - 1]}" for number in numbers}
        self.servers = {
            number: LocalZooKeeper(
                host=HOST,
                port=ports[3 * number - 3],
                data_dir=self._directory / f"zookeeper-{number}",
                server_id=number,
                quorum=quorum,
            )
            for number in numbers
        }

    async def kill(self, number: int) -> None:
        """SIGKILL one server."""
        await self.servers[number].kill()

    async def restart(self, number: int) -> None:
        """Start a killed server, and wait until it has joined the ensemble."""
        await self.servers[number].start()

    async def stop(self) -> None:
        """Kill all servers."""
        await asyncio.gather(*(server.kill() for server in self.servers.values()))
