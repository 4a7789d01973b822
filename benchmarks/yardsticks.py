"""The yardsticks of a machine: what a loop of Python and servers that only echo take on it, in the same run.

Figures of two machines can be compared as multiples of these. The echo servers answer requests of a size with responses
of a size, and do nothing else: one on asyncio, as little as a server in Python can do, and one in C on epoll, which is
the kernel's part. With fifty connections the client of `small_requests` is always awake; with one connection each
response wakes it, which is a part of the time of the server's system call.

    python -m benchmarks.yardsticks REQUEST_BYTES RESPONSE_BYTES     the server on asyncio
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.peers import READY_MARK

ECHO_SOURCE: Final = Path(__file__).with_name("epoll_echo.c")
ECHOES: Final = ("asyncio echo", "epoll echo")
LOOP_TURNS: Final = 1_000_000
LOOP_ROUNDS: Final = 5
NO_COMPILER: Final = "not measured: the echo in C (there is no compiler: cc)"


def loop_ms() -> float:
    """Milliseconds of a loop of a million additions, pinned to one core; the best of several rounds."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        return min(_loop_ms() for _ in range(LOOP_ROUNDS))
    finally:
        os.sched_setaffinity(0, cores)


def _loop_ms() -> float:
    start_s, total = time.process_time(), 0
    for number in range(LOOP_TURNS):
        total += number
    return (time.process_time() - start_s) * 1e3


@contextlib.contextmanager
def echo_commands() -> Iterator[dict[str, list[str]]]:
    """The commands of the echo servers, without the sizes; that in C only where there is a compiler."""
    commands = {ECHOES[0]: [sys.executable, "-m", "benchmarks.yardsticks"]}
    compiler = shutil.which("cc")
    with tempfile.TemporaryDirectory() as place:
        if compiler is not None:
            program = str(Path(place) / "epoll_echo")
            subprocess.run([compiler, "-O2", "-o", program, str(ECHO_SOURCE)], check=True)
            commands[ECHOES[1]] = [program]
        yield commands


class Echo(asyncio.BufferedProtocol):
    """A connection to the server on asyncio."""

    buffer: Final = memoryview(bytearray(1 << 16))

    def __init__(self, request_bytes: int, response: bytes) -> None:
        self._request_bytes = request_bytes
        self._response = response
        self._received_bytes = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that all connections share."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Answer each complete request."""
        self._received_bytes += nbytes
        while self._received_bytes >= self._request_bytes:
            self._received_bytes -= self._request_bytes
            self._transport.write(self._response)


async def serve(request_bytes: int, response_bytes: int) -> None:
    """Serve until the process ends."""
    response = (response_bytes - 4).to_bytes(4) + bytes(response_bytes - 4)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Echo(request_bytes, response), "127.0.0.1", 0)
    print(f"{READY_MARK}127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
