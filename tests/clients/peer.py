"""A server on a real socket with scripted responses.

Requests are decoded and responses encoded by the product's own server core; only the decisions belong to the test. Used
where the behaviour under test is what a client does when its peer is slow, silent, old or gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anabranch.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import ServerConnection
from anabranch.protocol.registry import APIS

EVERYTHING = {api.key: (0, api.last_version) for api in APIS}
Answer = Callable[[Any], Awaitable[Any]]


@dataclass
class Peer:
    """One listening server. `seen` collects the requests in the order of their arrival."""

    port: int = 0
    seen: list[DecodedRequest] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def saw(self, count: int) -> None:
        """Wait until that many requests have arrived."""
        while len(self.seen) < count:
            self.arrived.clear()
            await self.arrived.wait()

    def drop_connections(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


@asynccontextmanager
async def serve(answer: Answer, served: dict[int, tuple[int, int]] | None = None) -> AsyncIterator[Peer]:
    """Answer each request body with what `answer` returns; None sends nothing and closes nothing."""
    peer = Peer()
    versions = EVERYTHING if served is None else served

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer.tasks.add(task)
        peer.writers.append(writer)
        core = ServerConnection(versions)
        try:
            while data := await reader.read(65536):
                core.feed(data)
                while (request := core.next_request()) is not None:
                    peer.seen.append(request)
                    peer.arrived.set()
                    writer.writelines(core.answer(await _answer(request, answer, versions)))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            peer.tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        tasks = list(peer.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def _answer(request: DecodedRequest, answer: Answer, versions: dict[int, tuple[int, int]]) -> Any:
    if request.body is None:
        return None
    if isinstance(request.body, ApiVersionsRequest):
        keys = [ApiVersion(api_key=key, min_version=first, max_version=last) for key, (first, last) in versions.items()]
        return ApiVersionsResponse(error_code=0, api_keys=keys)
    return await answer(request.body)
