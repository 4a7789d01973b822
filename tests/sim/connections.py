"""The connections of a simulated network: two transports, and a first-in-first-out pipe of bytes for each direction.

A pipe delivers each piece with a delay, none before the one in front of it; a stalled one keeps what it has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.sim.loop import Process

if TYPE_CHECKING:
    from tests.sim.network import SimNetwork

KERNEL_BUFFER_BYTES: Final = 65536
EOF: Final = b"end of file"
RESET: Final = b"reset"


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

    async def start_serving(self) -> None:
        return  # connections are made from `create_server` on

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
        self.client = SimTransport(self, client, (server.process.host, server.port))
        self.server = SimTransport(self, server.process, (client.host, network.port_of_client()))
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
        """One process has died."""
        end, other = (self.client, self.server) if self.client.process is process else (self.server, self.client)
        end.closing = True
        end.out.cut()
        if not silently and other.process.alive:
            end.out.push(RESET)
        if not other.process.alive:
            self.network.forget(self)


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
            self.network.leaving(self, item)
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
        """The link or the reader resumes."""
        if self.queue and self._armed is None:
            self._arm(max(self.queue[0][0], self.loop.time() + self.network.delay_s(*self.link)))

    def put_off_end(self, until_s: float) -> None:
        """If the connection was ended, the other side learns it only then."""
        self.queue = deque((until_s if item is EOF or item is RESET else due, item, n) for due, item, n in self.queue)

    def _enqueue(self, item: bytes) -> None:
        due = max(self._last_due, self.loop.time() + self.network.delay_s(*self.link))
        self._last_due = due
        self.queue.append((due, item, self.network.sent()))
        if self._armed is None:
            self._arm(due)

    def _arm(self, due: float) -> None:
        # Runs in the receiver's process: a frozen one gets its bytes when it is thawed, a dead one never.
        self._armed = self.loop.happen_at(due, self._deliver, context=self.target.context)

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

    def __init__(self, connection: SimConnection, process: Process, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
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
