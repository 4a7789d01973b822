"""A TCP link that can be held: data arrives late, even if its sender has closed."""

from __future__ import annotations

import asyncio
import contextlib


class HeldLink:
    """Forwards connections on a port of its own to `port`, unless held."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.delayed = 0
        """Bytes of requests that came in while the link was held."""

    async def __aenter__(self) -> HeldLink:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink, requests in ((reader, upstream_writer, True), (upstream_reader, writer, False)):
            task = asyncio.ensure_future(self._pump(source, sink, requests))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, requests: bool) -> None:
        with contextlib.suppress(ConnectionError):
            try:
                while data := await source.read(65536):
                    if requests and not self._open.is_set():
                        self.delayed += len(data)
                    await self._open.wait()
                    sink.write(data)
                    await sink.drain()
            finally:
                sink.close()
