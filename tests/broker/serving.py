"""A server without a cluster: real sockets, real dispatch, handlers of the test."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.dynamic_config import DynamicConfig
from anabranch.broker.dispatch.dispatcher import HANDLERS, Dispatcher, Handler
from anabranch.broker.dispatch.services import Services
from anabranch.broker.membership.cluster_membership import ClusterMembership
from anabranch.broker.membership.controller_link import ControllerLink
from anabranch.broker.membership.producer_ids import Claim, ProducerIds
from anabranch.broker.metadata.metadata_cache import MetadataCache
from anabranch.broker.metadata.topic_configs import TopicConfigs
from anabranch.broker.network.server import Server
from anabranch.broker.quotas.response_memory import ResponseMemory
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.producer_id_blocks import claim_block
from anabranch.controller.zk.session import ZkSession
from anabranch.protocol.registry import BY_NAME

SETTINGS = BrokerSettings(port=0)


def claims(session: ZkSession, broker_id: int) -> Claim:
    """Blocks of producer ids straight from ZooKeeper, where there is no controller."""

    async def claim() -> tuple[int, int]:
        block = await claim_block(session, broker_id, session.multi)
        return block.first, block.last - block.first + 1

    return claim


async def lone_services(settings: BrokerSettings = SETTINGS, zookeeper: MemoryZooKeeper | None = None) -> Services:
    """What handlers get on a broker that has not met its cluster yet."""
    session = await (zookeeper or MemoryZooKeeper()).connect()
    return Services(
        dynamic=DynamicConfig(settings),
        metadata=MetadataCache(),
        topic_configs=TopicConfigs(settings, lambda: session),
        controller_link=ControllerLink(lambda: session, client_id="test", request_timeout_ms=1000),
        producer_ids=ProducerIds(claims(session, settings.node_id)),
        membership=ClusterMembership(session),
        clock_ms=lambda: 0,
        rng=random.Random(0),
        response_memory=ResponseMemory.of(settings),
        cluster_id="test-cluster",
    )


@contextlib.asynccontextmanager
async def serving(
    handlers: dict[str, Handler] | None = None, *, is_open: bool = True, **settings: Any
) -> AsyncIterator[Server]:
    """A listening server; `handlers` replaces the real ones by API name."""
    chosen = dataclasses.replace(SETTINGS, **settings)
    dispatcher = Dispatcher(await lone_services(chosen), HANDLERS)
    for name, handler in (handlers or {}).items():
        dispatcher._handlers[BY_NAME[name].key] = handler
    server = Server(chosen, dispatcher, is_open=is_open)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@dataclasses.dataclass
class Peer:
    """The other end of a raw connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, frame: bytes) -> None:
        """Write one frame."""
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def frame(self, timeout_s: float = 60) -> bytes:
        """Read one frame."""
        async with asyncio.timeout(timeout_s):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def closed(self, timeout_s: float = 60) -> bool:
        """Whether the server closes the connection."""
        try:
            async with asyncio.timeout(timeout_s):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close our end."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def is_served(self) -> None:
        """Send ApiVersions, and wait for the response."""
        self.send(request_frame(18, 0))
        await self.frame()


@contextlib.asynccontextmanager
async def peer(port: int) -> AsyncIterator[Peer]:
    """A raw connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    one = Peer(reader, writer)
    try:
        yield one
    finally:
        await one.close()


def request_frame(
    key: int, version: int, body: bytes = b"", *, correlation_id: int = 1, flexible: bool = False
) -> bytes:
    """Header and body of a request whose client id is "t"."""
    return struct.pack(">hhih", key, version, correlation_id, 1) + b"t" + (b"\0" if flexible else b"") + body


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Give the loop turns until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 the conditions are plain attributes of running code
            await asyncio.sleep(0.001)
