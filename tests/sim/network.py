"""The network of a simulation: connections are pairs of first-in-first-out queues with delays, and links can fail.

A link is a directed pair of hosts. While it is blocked nothing passes, and nothing is lost either: TCP retransmits, so
what was sent arrives, late, after the link is healed. That makes half-open connections, too: who sends into a
blocked link learns nothing. One connection may stall while others pass on the same link: then what was asked first
arrives last. A connection can be reset at any byte, so that a frame is cut in the middle. A host that is
dead refuses connections; one without power does not even refuse.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.sim.connections import Pipe, SimConnection, SimServer, SimTransport
from tests.sim.loop import PROCESS, Process, SimLoop

EPHEMERAL_PORTS_FROM: Final = 40000


class SimNetwork:
    """All listeners, connections and links."""

    def __init__(self, loop: SimLoop, rng: random.Random, *, delay_ms: tuple[float, float] = (0.2, 3.0)) -> None:
        self.loop = loop
        self.rng = rng
        self.delay_ms = delay_ms
        self.split_chance = 0.02
        self.fired: Counter[str] = Counter()
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._blocked: dict[tuple[str, str], list[asyncio.Future[None]]] = {}
        self._slow_ms: dict[tuple[str, str], float] = {}
        self._dark: dict[str, None] = {}
        self._connections: dict[SimConnection, None] = {}
        self._snares: dict[tuple[str, str], tuple[bytes, list[Pipe]]] = {}
        self._sent = 0
        self._newest: dict[tuple[str, str], int] = {}
        self._next_port = EPHEMERAL_PORTS_FROM
        self._clients = 0
        loop.network = self

    def port_of_client(self) -> int:
        """A new port: an address identifies one connection."""
        self._clients += 1
        return EPHEMERAL_PORTS_FROM + self._clients

    # --- what the loop asks for

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> SimServer:
        process = _process()
        if not port:
            self._next_port += 1
            port = self._next_port
        assert (process.host, port) not in self._listeners, f"{process.host}:{port} is in use"
        server = SimServer(self, factory, process, port)
        self._listeners[process.host, port] = server
        return server

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[SimTransport, Any]:
        process = _process()
        source = process.host
        loop = self.loop
        await asyncio.sleep(self.delay_s(source, host))
        await self._passes(source, host)
        await self._passes(host, source)
        if host in self._dark:
            self.fired["connection to a dark host"] += 1
            await loop.create_future()
        server = self._listeners.get((host, port))
        if server is None or not server.process.alive:
            await asyncio.sleep(self.delay_s(host, source))
            self.fired["connection refused"] += 1
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        connection = SimConnection(self, process, server)
        self._connections[connection] = None
        loop.call_soon(connection.accept, server, context=server.process.context.copy())
        await asyncio.sleep(self.delay_s(host, source))
        protocol = factory()
        connection.client.start(protocol)
        return connection.client, protocol

    # --- faults

    def block(self, source: str, target: str) -> None:
        """Nothing passes from source to target until `heal`."""
        self._blocked.setdefault((source, target), [])

    def heal(self, source: str, target: str) -> None:
        """The link works again, and delivers what it owes."""
        for waiting in self._blocked.pop((source, target), []):
            if not waiting.done():
                waiting.set_result(None)
        for connection in list(self._connections):
            for pipe in connection.pipes:
                if pipe.link == (source, target):
                    pipe.resume()

    def heal_all(self) -> None:
        """Every link works."""
        self._slow_ms.clear()
        for link in list(self._blocked):
            self.heal(*link)

    def blocked(self, source: str, target: str) -> bool:
        """Whether nothing passes."""
        return (source, target) in self._blocked

    def slow(self, source: str, target: str, delay_ms: float) -> None:
        """Add a delay to a link; 0 takes it away."""
        self._slow_ms[source, target] = delay_ms

    def snare(self, source: str, target: str, api_key: int) -> list[Pipe]:
        """The next request of this API stalls its connection, which the list then has; others work, and new ones."""
        caught: list[Pipe] = []
        self._snares[source, target] = (api_key.to_bytes(2, "big"), caught)
        return caught

    def unsnare(self, source: str, target: str) -> None:
        """Let pass what has not come yet."""
        self._snares.pop((source, target), None)

    def release(self, pipe: Pipe, *, ends_after_s: float) -> None:
        """Deliver a stalled connection's data, and later its end. If both arrived together, the request would not be
        processed.
        """
        self.fired["overtaken on another connection"] += bool(pipe.queue)
        pipe.stalled = False
        pipe.put_off_end(self.loop.time() + ends_after_s)
        pipe.resume()

    def reset_some(self, host: str, chance: float) -> int:
        """Reset each connection of a host with a probability, in the middle of whatever is under way."""
        hit = [one for one in self._connections if host in one.hosts and self.rng.random() < chance]
        for connection in hit:
            self.fired["connection reset"] += 1
            connection.reset(cut=True)
        return len(hit)

    def process_died(self, process: Process, *, silently: bool) -> None:
        """The kernel resets a dead process's connections; a machine without power does not."""
        for address in [key for key, server in self._listeners.items() if server.process is process]:
            del self._listeners[address]
        if silently:
            self._dark[process.host] = None
        for connection in list(self._connections):
            if process in connection.processes:
                connection.die(process, silently=silently)

    def host_is_up(self, host: str) -> None:
        """A machine is back: its kernel resets old connections."""
        if host in self._dark:
            del self._dark[host]
            for connection in list(self._connections):
                if host in connection.hosts:
                    connection.reset(cut=False)

    # --- inside

    def delay_s(self, source: str, target: str) -> float:
        low, high = self.delay_ms
        base = low + (high - low) * self.rng.random() ** 3
        extra = self._slow_ms.get((source, target))
        if extra:
            self.fired["slow delivery"] += 1
            base += extra * (0.5 + self.rng.random())
        return base / 1000

    async def _passes(self, source: str, target: str) -> None:
        while (source, target) in self._blocked:
            self.fired["connection attempt into a blocked link"] += 1
            waiting = self.loop.create_future()
            self._blocked[source, target].append(waiting)
            await waiting

    def sent(self) -> int:
        """A number for what is sent now, so that overtaking is noticed."""
        self._sent += 1
        return self._sent

    def leaving(self, pipe: Pipe, data: bytes) -> None:
        """A piece enters a pipe: perhaps an awaited request."""
        if pipe.link in self._snares:
            key, caught = self._snares[pipe.link]
            if data[4:6] == key:  # behind the size of the frame
                caught.append(pipe)
                pipe.stalled = True
                del self._snares[pipe.link]

    def arrived(self, link: tuple[str, str], number: int) -> None:
        """Something sent arrives: perhaps after what was sent later on another connection."""
        if number < self._newest.get(link, 0):
            self.fired["overtaken on another connection"] += 1
        else:
            self._newest[link] = number

    def held(self, link: tuple[str, str]) -> None:
        """A delivery has to wait until the link is healed."""
        self.fired["delivery held by a blocked link"] += 1
        if (link[1], link[0]) not in self._blocked:
            self.fired["delivery held by a link blocked one way"] += 1

    def forget_listener(self, server: SimServer) -> None:
        if self._listeners.get((server.process.host, server.port)) is server:
            del self._listeners[server.process.host, server.port]

    def forget(self, connection: SimConnection) -> None:
        self._connections.pop(connection, None)

    def dark(self, host: str) -> bool:
        return host in self._dark


def _process() -> Process:
    process = PROCESS.get()
    assert process is not None, "only a process has a place in the network"
    process.must_live()
    return process
