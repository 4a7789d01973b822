"""One shared connection to each broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.broker.membership.peer_connections import PeerConnections
from anabranch.broker.metadata.metadata_cache import BrokerImage, MetadataCache
from tests.broker.serving import SETTINGS, serving, until


def known(**ports: int) -> MetadataCache:
    """Brokers by their ids: b1=PORT."""
    brokers = {
        int(name[1:]): BrokerImage(id=int(name[1:]), host="127.0.0.1", port=port, rack=None, epoch=1)
        for name, port in ports.items()
    }
    return cast(MetadataCache, SimpleNamespace(broker=lambda node: brokers.get(node), brokers=brokers))


def connections(metadata: Any) -> PeerConnections:
    return PeerConnections(lambda: SETTINGS, metadata, name="test")


async def test_concurrent_callers_share_one_connection() -> None:
    async with serving() as server:
        peers = connections(known(b1=server.port))
        first, *others = await asyncio.gather(*(peers.to(1) for _ in range(5)))
        assert all(one is first for one in others)
        assert len(server.connections) == 1
        await peers.close()
        assert first.closed


async def test_broken_or_outdated_connection_is_replaced() -> None:
    async with serving() as server, serving() as moved:
        metadata = known(b1=server.port)
        peers = connections(metadata)
        first = await peers.to(1)
        first.abort("broken")
        second = await peers.to(1)
        assert not second.closed
        metadata.brokers[1] = BrokerImage(id=1, host="127.0.0.1", port=moved.port, rack=None, epoch=2)
        third = await peers.to(1)
        assert second.closed
        assert third.peer.endswith(f":{moved.port}")
        await peers.close()


async def test_dead_broker_or_closed_pool_refuses_a_connection() -> None:
    async with serving() as server:
        peers = connections(known(b1=server.port))
        with pytest.raises(ConnectionError, match="broker 2 is not alive"):
            await peers.to(2)
        opening = asyncio.create_task(peers.to(1))
        await asyncio.sleep(0)  # it connects
        await peers.close()
        with pytest.raises(ConnectionError, match="is stopping"):
            await opening
        with pytest.raises(ConnectionError, match="is stopping"):
            await peers.to(1)
        await until(lambda: not server.connections)
