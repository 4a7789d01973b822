"""One fetcher for each leader: its start, its address, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.metadata.metadata_cache import MetadataCache
from anabranch.broker.replication.fetchers import Fetchers
from anabranch.broker.replication.partition import Partition
from anabranch.broker.tasks.supervised_task import FatalNodeError
from anabranch.protocol.apis.fetch import FetchResponse
from anabranch.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.partitions import follower, state_of
from tests.broker.replication.replica_cluster import until
from tests.clients.peer import serve

LEADER = 2


@asynccontextmanager
async def fetching(metadata: MetadataCache | None = None) -> AsyncIterator[tuple[Fetchers, Any]]:
    """Fetchers of a broker, and a leader that answers every Fetch with a refusal of its session."""
    bugs: list[FatalNodeError] = []

    async def respond(request: Any) -> FetchResponse:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])

    async with serve(respond) as peer, asyncio.timeout(30):
        fetchers = Fetchers(
            BrokerSettings,
            metadata or MetadataCache(),
            broker_epoch=lambda: 1,
            progressed=lambda _: None,
            died=bugs.append,
        )
        fetchers.learn_addresses([(LEADER, "127.0.0.1", peer.port)])
        yield fetchers, peer
        await fetchers.close()
    assert not bugs


def without_leader() -> Partition:
    partition = follower((1, 1))
    partition.become_follower(state_of(-1, 10, (LEADER,), replicas=[1, LEADER]))
    return partition


async def test_partitions_of_one_leader_share_a_fetcher_that_stops_with_the_last() -> None:
    async with fetching() as (fetchers, peer):
        first, second = follower((1, 1)), follower((1, 2))
        for partition in (first, second):
            fetchers.follow(partition)
        assert not peer.seen, "nothing is fetched before the request is settled"
        fetchers.settle()
        await peer.saw(2)  # ApiVersions, Fetch
        assert len(peer.writers) == 1
        fetchers.forget(first)
        fetchers.settle()
        seen = len(peer.seen)
        await peer.saw(seen + 1)
        assert len(peer.tasks) == 1, "the second one is fetched still"
        fetchers.forget(second)
        fetchers.settle()
        assert not fetchers._by_leader
        await until(lambda: not peer.tasks)


async def test_partition_without_a_leader_is_not_fetched() -> None:
    async with fetching() as (fetchers, _):
        fetchers.follow(without_leader())
        fetchers.settle()
        assert not fetchers._by_leader
        fetchers.forget(without_leader())


async def test_closed_fetcher_restarts_with_the_next_partition() -> None:
    async with fetching() as (fetchers, peer):
        fetchers.follow(follower((1, 1)))
        fetchers.settle()
        await peer.saw(2)
        await fetchers.close_one(LEADER)
        await until(lambda: not peer.tasks)
        seen = len(peer.seen)
        fetchers.follow(follower((1, 1)))
        fetchers.settle()
        await peer.saw(seen + 2)


async def test_metadata_address_takes_precedence_over_leader_and_isr() -> None:
    metadata = MetadataCache()
    async with fetching(metadata) as (fetchers, peer):
        endpoint = UpdateMetadataEndpoint(port=peer.port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
        broker = UpdateMetadataBroker(id=LEADER, endpoints=[endpoint], rack=None)
        metadata.apply(
            UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[], live_brokers=[broker])
        )
        fetchers.learn_addresses([(LEADER, "127.0.0.1", 1)])
        fetchers.follow(follower((1, 1)))
        fetchers.settle()
        await peer.saw(2)
