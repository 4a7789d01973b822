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
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from tests.sim.loop import PROCESS, Process, SimLoop

EPHEMERAL_PORTS_FROM: Final = 40000
KERNEL_BUFFER_BYTES: Final = 65536


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
        self._sent = 0
        self._newest: dict[tuple[str, str], int] = {}
        self._next_port = EPHEMERAL_PORTS_FROM
        loop.network = self

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

    def stall(self, source: str, target: str) -> list[Pipe]:
        """Nothing more passes from source to target on the connections that there are; new ones work."""
        pipes = [pipe for one in self._connections for pipe in one.pipes if pipe.link == (source, target)]
        for pipe in pipes:
            pipe.stalled = True
        return pipes

    def release(self, pipes: list[Pipe]) -> int:
        """What these owe is delivered; on how many of them something waited."""
        late = [pipe for pipe in pipes if pipe.queue]
        for pipe in pipes:
            pipe.stalled = False
            pipe.resume()
        self.fired["overtaken on another connection"] += len(late)
        return len(late)

    def reset_some(self, host: str, chance: float) -> int:
        """Reset each connection of a host with a probability, in the middle of whatever is under way."""
        hit = [one for one in self._connections if host in one.hosts and self.rng.random() < chance]
        for connection in hit:
            self.fired["connection reset"] += 1
            connection.reset(cut=True)
        return len(hit)

    def process_died(self, process: Process, *, silently: bool) -> None:
        """A kernel resets the connections of a process that is gone; a machine without power says nothing."""
        for address in [key for key, server in self._listeners.items() if server.process is process]:
            del self._listeners[address]
        if silently:
            self._dark[process.host] = None
        for connection in list(self._connections):
            if process in connection.processes:
                connection.die(process, silently=silently)

    def host_is_up(self, host: str) -> None:
        """A machine is back: its kernel resets what others still believe to be connected."""
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


class SimServer:
    """A listening socket; what `create_server` returns."""

    def __init__(self, network: SimNetwork, factory: Callable[[], Any], process: Process, port: int) -> None:
        self.network = network
        self.factory = factory
        self.process = process
        self.port = port
        self.sockets = (_Socket(process.host, port),)

    def close(self) -> None:
        self.network.forget_listener(self)

    async def wait_closed(self) -> None:
        return

    def is_serving(self) -> bool:
        return True


class _Socket:
    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name


class SimConnection:
    """Two transports and the two directions between them."""

    def __init__(self, network: SimNetwork, client: Process, server: SimServer) -> None:
        self.network = network
        self.hosts = (client.host, server.process.host)
        self.processes = (client, server.process)
        self.client = SimTransport(self, client, server.process)
        self.server = SimTransport(self, server.process, client)
        self.pipes = (Pipe(self.client, self.server), Pipe(self.server, self.client))
        self.client.out, self.server.out = self.pipes

    def accept(self, server: SimServer) -> None:
        """Runs in the server's process."""
        if not self.server.closing:
            self.server.start(server.factory())

    def reset(self, *, cut: bool) -> None:
        """Both ends lose the connection; a random part of what was under way still arrives."""
        for pipe in self.pipes:
            if cut:
                pipe.cut()
            pipe.push(RESET)
        for end in (self.client, self.server):
            end.broken = True

    def die(self, process: Process, *, silently: bool) -> None:
        """One process is gone."""
        end, other = (self.client, self.server) if self.client.process is process else (self.server, self.client)
        end.closing = True
        end.out.cut()
        if not silently and other.process.alive:
            end.out.push(RESET)
        if not other.process.alive:
            self.network.forget(self)


EOF: Final = b"end of file"
RESET: Final = b"reset"


class Pipe:
    """One direction: bytes leave in order, each with a delay, none before the one in front of it."""

    def __init__(self, source: SimTransport, target: SimTransport) -> None:
        self.source = source
        self.target = target
        self.link = (source.process.host, target.process.host)
        self.network = source.connection.network
        self.loop = self.network.loop
        self.queue: deque[tuple[float, bytes, int]] = deque()
        self.buffered_bytes = 0
        self.stalled = False
        self._last_due = 0.0
        self._armed: Any = None

    def push(self, item: bytes) -> None:
        rng = self.network.rng
        if item is not EOF and item is not RESET:
            self.buffered_bytes += len(item)
            if len(item) > 1 and rng.random() < self.network.split_chance:
                place = rng.randrange(1, len(item))
                self._enqueue(item[:place])
                item = item[place:]
                self.network.fired["split read"] += 1
        self._enqueue(item)

    def cut(self) -> None:
        """Lose what is under way from a random byte on."""
        data = [item for _, item, _ in self.queue if item is not EOF and item is not RESET]
        keep = self.network.rng.randint(0, sum(map(len, data)))
        kept: deque[tuple[float, bytes, int]] = deque()
        for due, item, number in self.queue:
            if keep <= 0 or item is EOF or item is RESET:
                break
            kept.append((due, item[:keep], number))
            if keep < len(item):
                self.network.fired["frame cut"] += 1
            keep -= len(item)
        self.queue = kept

    def resume(self) -> None:
        """The link or the reader goes on."""
        if self.queue and self._armed is None:
            self._arm(max(self.queue[0][0], self.loop.time() + self.network.delay_s(*self.link)))

    def _enqueue(self, item: bytes) -> None:
        due = max(self._last_due, self.loop.time() + self.network.delay_s(*self.link))
        self._last_due = due
        self.queue.append((due, item, self.network.sent()))
        if self._armed is None:
            self._arm(due)

    def _arm(self, due: float) -> None:
        # Runs in the receiver's process: a frozen one gets its bytes when it is thawed, a dead one never.
        self._armed = self.loop.call_at(due, self._deliver, context=self.target.context)

    def _deliver(self) -> None:
        self._armed = None
        while self.queue and not self.target.reading_paused:
            due, item, number = self.queue[0]
            if self.stalled:
                return
            if self.network.blocked(*self.link):
                self.network.held(self.link)
                return
            if due > self.loop.time():
                self._arm(due)
                return
            self.queue.popleft()
            self.network.arrived(self.link, number)
            if item is not EOF and item is not RESET:
                self.buffered_bytes -= len(item)
                self.source.drained()
            self.target.receive(item)


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, connection: SimConnection, process: Process, peer: Process) -> None:
        super().__init__({"peername": (peer.host, 0)})
        self.connection = connection
        self.process = process
        self.context = process.context.copy()
        self.out: Pipe
        self.closing = False
        self.broken = False
        """Nothing that is written from now on arrives; what arrived before the reset is still read."""
        self.reading_paused = False
        self._protocol: Any = None
        self._early: list[bytes] = []
        self._lost = False
        self._write_paused = False
        self._high_bytes = 1 << 20

    def start(self, protocol: Any) -> None:
        """The protocol takes over."""
        self._protocol = protocol
        protocol.connection_made(self)
        early, self._early = self._early, []
        for item in early:
            self.receive(item)

    def receive(self, item: bytes) -> None:
        """Bytes, the end, or a reset arrived."""
        if self._lost:
            return
        if self._protocol is None:
            self._early.append(item)
        elif item is RESET:
            self._lose(ConnectionResetError("connection reset by peer"))
        elif item is EOF:
            if not self._protocol.eof_received():
                self.close()
        elif not self.closing:
            self._feed(item)

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            place = 0
            while place < len(data) and not self.closing:
                buffer = protocol.get_buffer(len(data) - place)
                count = min(len(buffer), len(data) - place)
                buffer[:count] = data[place : place + count]
                place += count
                protocol.buffer_updated(count)
        else:
            protocol.data_received(data)

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self.closing or self.broken or self._lost or not self.process.alive:
            return
        data = b"".join(list_of_data)
        if data:
            self.out.push(data)
            if self.out.buffered_bytes > self._high_bytes + KERNEL_BUFFER_BYTES and not self._write_paused:
                self._write_paused = True
                self._protocol.pause_writing()

    def drained(self) -> None:
        """The peer took something."""
        if self._write_paused and self.out.buffered_bytes <= KERNEL_BUFFER_BYTES:
            self._write_paused = False
            self.connection.network.loop.call_soon(self._resume_writing, context=self.context)

    def _resume_writing(self) -> None:
        if not self._lost:
            self._protocol.resume_writing()

    def close(self) -> None:
        self._end(EOF)

    def abort(self) -> None:
        self._end(RESET)

    def _end(self, item: bytes) -> None:
        if self.closing or not self.process.alive:
            return
        self.closing = True
        if not self.broken:
            self.out.push(item)
        self.connection.network.loop.call_soon(self._lose, None, context=self.context)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self.closing = True
            connection = self.connection
            if connection.client._lost and connection.server._lost:
                connection.network.forget(connection)
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self.closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high if high is not None else 65536

    def get_write_buffer_size(self) -> int:
        return max(0, self.out.buffered_bytes - KERNEL_BUFFER_BYTES)

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False
        incoming = self.connection.pipes[0 if self.connection.pipes[0].target is self else 1]
        incoming.resume()

    def is_reading(self) -> bool:
        return not self.reading_paused

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
