"""A client finds the cluster, and refreshes its metadata without duplicates.

Method: peers on real sockets that play brokers as a test tells them to.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

from anabranch.clients import metadata_updater
from anabranch.clients import network as network_module
from anabranch.clients.backoff import Backoff
from anabranch.clients.config import NetworkConfig
from anabranch.clients.network import Network
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.brokers import connected, heartbeat
from tests.clients.peer import Peer


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask no second node because the machine is slow: tests count the requests."""
    monkeypatch.setattr(network_module, "PATIENCE_S", 60)


async def test_long_bootstrap_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(metadata_updater, "QUIET_S", 0.0)
    config = NetworkConfig(bootstrap_servers=(("127.0.0.1", 1),), bootstrap_timeout_ms=100, retry_backoff=Backoff(1, 5))
    with caplog.at_level(logging.WARNING), pytest.raises(ConnectionError, match="no bootstrap server responded"):
        await Network(config, random.Random(1)).start()
    assert caplog.messages == ["waiting for an answer from 127.0.0.1:1, up to 0.1 s"]


async def test_immediate_bootstrap_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with connected() as (_, network):
            assert len(network.metadata.nodes) == 2
    assert not caplog.messages


async def test_bootstrap_learns_the_cluster() -> None:
    async with connected() as (_, network):
        assert set(network.metadata.nodes) == {1, 2}
        assert (await network.call(2, heartbeat())).throttle_time_ms == 2
        with pytest.raises(ConnectionError, match="not in the metadata"):
            await network.call(9, heartbeat())


async def test_refreshes_are_shared_but_never_older_than_the_call() -> None:
    async with connected() as (brokers, network):
        before = brokers.count(MetadataRequest)
        brokers.hold_metadata = asyncio.Event()
        early = [asyncio.ensure_future(network.refresh()) for _ in range(5)]
        while brokers.count(MetadataRequest) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        network.follow("t")
        late = [asyncio.ensure_future(network.refresh()) for _ in range(5)]
        await asyncio.sleep(0)
        brokers.hold_metadata.set()
        await asyncio.gather(*early)
        for snapshot in await asyncio.gather(*late):
            assert "t" in snapshot.topics, "the refresh under way was asked before `follow`"
        assert brokers.count(MetadataRequest) - before == 2


@pytest.mark.parametrize("name", [b"t", None, 5, "\udc80"])
async def test_topic_that_cannot_be_named_in_a_request_does_not_end_all_refreshes(name: Any) -> None:
    async with connected() as (_, network):
        with pytest.raises((TypeError, ValueError)):
            await network.wait_for_topic(name, lambda metadata: False, timeout_ms=1000)
        await network.refresh()


async def test_metadata_listeners_are_called_until_removed() -> None:
    async with connected() as (_, network):
        snapshots = []
        stop = network.on_metadata(snapshots.append)
        await network.refresh()
        assert snapshots == [network.metadata]
        stop()
        await network.refresh()
        assert len(snapshots) == 1


async def test_metadata_is_refreshed_at_max_age() -> None:
    async with connected(metadata_max_age_ms=20) as (_, network):
        fresh = asyncio.Event()
        network.on_metadata(lambda metadata: fresh.set())
        await fresh.wait()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.POLICY_VIOLATION,
    ],
)
async def test_topic_not_yet_usable_is_requested_again(code: ErrorCode) -> None:
    async with connected() as (brokers, network):
        brokers.topic_error = code
        pending = asyncio.ensure_future(network.leader_of(TopicPartition("t", 0)))
        while brokers.count(MetadataRequest) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert not pending.done()
        brokers.topic_error = ErrorCode.NONE
        assert await pending == 1


async def test_concurrent_lookups_of_a_topic_share_one_request() -> None:
    """The first records of a topic with 10,000 partitions cause one large response, not two."""
    async with connected() as (brokers, network):
        before = brokers.count(MetadataRequest)
        found = await asyncio.gather(*(network.leader_of(TopicPartition("t", 0)) for _ in range(50)))
        assert found == [1] * 50
        assert brokers.count(MetadataRequest) == before + 1


async def test_error_of_another_callers_request_fails_only_that_caller() -> None:
    """Only a response to the call's own request counts; an earlier obstacle may be gone."""
    async with connected() as (brokers, network):
        brokers.hold_metadata, brokers.topic_error = asyncio.Event(), ErrorCode.TOPIC_AUTHORIZATION_FAILED
        first = asyncio.ensure_future(network.leader_of(TopicPartition("t", 0)))
        while brokers.count(MetadataRequest) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(network.leader_of(TopicPartition("t", 0)))
        await asyncio.sleep(0)
        network.on_metadata(lambda _: setattr(brokers, "topic_error", ErrorCode.NONE))
        brokers.hold_metadata.set()
        with pytest.raises(KafkaError):
            await first
        assert await second == 1


async def test_timed_out_wait_for_topic_names_last_error() -> None:
    async with connected() as (brokers, network):
        brokers.topic_error = ErrorCode.INVALID_REPLICATION_FACTOR
        with pytest.raises(TimeoutError, match="within 400 ms: the cluster answers INVALID_REPLICATION_FACTOR for t"):
            await network.wait_for_topic("t", lambda metadata: False, timeout_ms=400)  # first it connects
        brokers.topic_error, brokers.leader = ErrorCode.NONE, 7
        with pytest.raises(TimeoutError, match="t does not meet the condition"):
            await network.wait_for_topic("t", lambda metadata: False, timeout_ms=40)
        with pytest.raises(TimeoutError, match="t has no partition 5"):
            await network.wait_for_topic("t", lambda metadata: False, index=5, timeout_ms=40)
        assert network.error_for("t", 0) == "node 7, the leader of t-0, is not available"
        brokers.leader = 2
        await network.refresh()
        assert network.error_for("t", 0) == ""
        brokers.peers[3], brokers.leader = Peer(port=1), 3
        await network.refresh()
        with pytest.raises(ConnectionError):
            await network.call(3, heartbeat())
        assert network.error_for("t", 0).startswith("node 3 cannot be reached: ")


async def test_error_of_one_call_does_not_fail_next_call() -> None:
    async with connected() as (brokers, network):
        for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
            brokers.topic_error = code
            with pytest.raises(KafkaError) as refused:
                await network.leader_of(TopicPartition(code.name, 0))
            assert refused.value.code == code
            assert network.metadata.errors[code.name] == code
            brokers.topic_error = ErrorCode.NONE
            assert await network.leader_of(TopicPartition(code.name, 0)) == 1


async def test_wait_for_times_out() -> None:
    async with connected() as (_, network):
        with pytest.raises(TimeoutError):
            await network.wait_for(lambda metadata: False, timeout_ms=20)


async def test_moved_cluster_is_found_through_bootstrap_address() -> None:
    async with connected(nodes=1) as (brokers, network):
        here = brokers.peers
        brokers.peers = {9: Peer(port=1)}
        assert set((await network.refresh()).nodes) == {9}
        brokers.peers = here
        assert set((await network.refresh()).nodes) == {1}


async def test_closed_network_does_not_bootstrap_again() -> None:
    async with connected() as (brokers, network):
        await network.close()
        before = brokers.count(MetadataRequest)
        with pytest.raises(ConnectionError, match="closed"):
            await network.refresh()
        with pytest.raises(ConnectionError, match="closed"):
            await network.wait_for(lambda metadata: False)
        assert brokers.count(MetadataRequest) == before
