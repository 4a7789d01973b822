"""A process that starts and stops fresh clusters on request, each on its own ports, in a few milliseconds.

    python -m anabranch.testing.cluster_host

Commands are JSON lines: {"start": {"brokers": 3, "properties": {}, "journal": 0}} returns {"cluster": 1, "bootstrap":
"...", "control": "..."}, {"stop": 1} returns {"stopped": 1}, and a failure {"error": "..."}. When standard input
closes, the process ends with all its clusters.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from anabranch.broker.config.broker_settings import ConfigError
from anabranch.clock.cluster_clock import ClusterClock
from anabranch.clock.loop import ClockLoop
from anabranch.cluster.in_process import Cluster
from anabranch.control.endpoint import Address, ControlEndpoint

ANYWHERE: Final = Address("127.0.0.1", 0)
ORDER_BYTES_MAX: Final = 1 << 20


class ClusterHost:
    """The clusters of one process."""

    def __init__(self) -> None:
        self._running: dict[int, contextlib.AsyncExitStack] = {}
        self._numbers = itertools.count(1)
        self._has_control = importlib.util.find_spec("aiohttp") is not None

    async def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        """Execute one command; returns the result."""
        try:
            if "start" in order:
                return await self._start(**order["start"])
            return await self._stop(int(order["stop"]))
        except (ConfigError, OSError, TimeoutError) as error:
            return {"error": str(error)}

    async def _start(
        self,
        brokers: int,
        properties: dict[str, str],
        journal: int,
        frames: bool = False,
        listeners: Sequence[str] = (),
        kafka: str = "",
    ) -> dict[str, Any]:
        number = next(self._numbers)
        async with contextlib.AsyncExitStack() as stack:
            cluster = Cluster(brokers, properties=properties, listeners=listeners, kafka=kafka)
            clock = ClusterClock.new()
            await stack.enter_async_context(cluster if clock is None else clock.running(cluster))
            description: dict[str, Any] = {"cluster": number, "bootstrap": cluster.bootstrap_servers}
            description["listeners"] = cluster.listeners
            if self._has_control:
                endpoint = ControlEndpoint(ANYWHERE, "", journal, frames=frames)
                await stack.enter_async_context(endpoint.open(cluster, clock))
                description["control"] = endpoint.url
            self._running[number] = stack.pop_all()
        return description

    async def _stop(self, number: int) -> dict[str, Any]:
        await self._running.pop(number).aclose()
        return {"stopped": number}

    async def close(self) -> None:
        """Stop all clusters."""
        for number in list(self._running):
            await self._stop(number)


async def serve() -> None:
    """Execute the commands of standard input until it closes."""
    host, loop = ClusterHost(), asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=ORDER_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    try:
        while line := await orders.readline():
            answer = await host.carry_out(json.loads(line))
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        await host.close()


if __name__ == "__main__":
    # The tests end this process.
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(serve())
