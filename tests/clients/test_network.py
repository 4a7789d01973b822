"""A client asks the nodes that answer, finds leaders and coordinators, and survives lost connections.

Method: peers on real sockets that play brokers as a test tells them to. `test_metadata_updater` tests the refreshes.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch.clients import network as network_module
from anabranch.clients.network import GROUP
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.brokers import connected, heartbeat


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask no second node because the machine is slow: tests count the requests."""
    monkeypatch.setattr(network_module, "PATIENCE_S", 60)


def error_of(response: HeartbeatResponse) -> int:
    return response.error_code


async def test_each_node_has_one_connection() -> None:
    async with connected() as (brokers, network):
        await asyncio.gather(*(network.call(2, heartbeat()) for _ in range(20)))
        assert len(brokers.peers[2].writers) == 1


async def test_leader_of_waits_for_a_leader() -> None:
    async with connected() as (brokers, network):
        brokers.leader = -1
        pending = asyncio.ensure_future(network.leader_of(TopicPartition("t", 0)))
        while brokers.count(MetadataRequest) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert not pending.done()
        brokers.leader = 2
        assert await pending == 2


async def test_leader_of_missing_partition_times_out() -> None:
    async with connected(request_timeout_ms=50) as (_, network):
        with pytest.raises(TimeoutError):
            await network.leader_of(TopicPartition("t", 99))


async def test_leader_of_a_refused_topic_is_an_error() -> None:
    async with connected() as (brokers, network):
        brokers.topic_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaError) as refused:
            await network.leader_of(TopicPartition("t", 0))
        assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_coordinators_are_found_cached_and_forgotten() -> None:
    async with connected() as (brokers, network):
        brokers.coordinator_errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert await network.coordinator("g") == 1
        assert await network.coordinator("g") == 1
        assert brokers.count(FindCoordinatorRequest) == 2
        brokers.coordinator = 2
        brokers.heartbeat_errors = [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.REQUEST_TIMED_OUT,
        ]
        response = await network.call_coordinator("g", heartbeat(), error_of)
        assert (response.throttle_time_ms, response.error_code) == (2, 0)
        brokers.heartbeat_errors = [ErrorCode.REBALANCE_IN_PROGRESS]
        response = await network.call_coordinator("g", heartbeat(), error_of)
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS, "what it means is the caller's"


async def test_lost_connection_is_reopened() -> None:
    async with connected() as (brokers, network):
        await network.call(2, heartbeat())
        brokers.peers[2].drop_connections()
        assert (await network.retry(lambda: network.call(2, heartbeat()))).throttle_time_ms == 2


async def test_node_that_did_not_answer_in_time_is_asked_last_until_it_answers() -> None:
    """Its other connection is still open: it would be chosen as often as the others, for a whole timeout each time."""
    async with connected(nodes=3) as (brokers, network):
        for node in (1, 2, 3):
            await network.call(node, heartbeat())
        brokers.silent.add(1)
        with pytest.raises(TimeoutError):
            await network.call(1, heartbeat(), timeout_ms=20, channel=GROUP)
        seen = len(brokers.peers[1].seen)
        assert {(await network.call_any(heartbeat())).throttle_time_ms for _ in range(20)} == {2, 3}
        assert len(brokers.peers[1].seen) == seen
        brokers.silent.clear()
        await network.call(1, heartbeat())
        assert {(await network.call_any(heartbeat())).throttle_time_ms for _ in range(20)} == {1, 2, 3}


@pytest.mark.parametrize("silent", [{1}, {1, 2}])
async def test_metadata_and_coordinators_come_from_another_node_while_one_is_frozen(
    silent: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request to a frozen node takes the whole timeout, for which all that need new metadata would wait."""
    monkeypatch.setattr(network_module, "PATIENCE_S", 0.02)
    async with connected(nodes=3, request_timeout_ms=3_600_000) as (brokers, network):
        for node in (1, 2, 3):
            await network.call(node, heartbeat())
        brokers.silent |= silent
        brokers.coordinator = 3
        for _ in range(5):
            await network.refresh()
            network.forget_coordinator("g")
            assert await network.coordinator("g") == 3
        seen = [sum(isinstance(one.body, MetadataRequest) for one in peer.seen) for peer in brokers.peers.values()]
        assert all(seen[node - 1] <= 2 for node in silent), "a silent node is asked last"


async def test_another_node_is_asked_while_the_only_connected_one_is_cut_off_from_the_cluster() -> None:
    """It answers at once, and nothing else leads to a connection to another node."""
    async with connected() as (brokers, network):
        brokers.leader = brokers.coordinator = 2
        brokers.cut_off = {1}
        await network.call(1, heartbeat())
        async with asyncio.timeout(10):
            await network.wait_for_topic("t", lambda metadata: metadata.leader("t", 0) == 2)
    async with connected() as (brokers, network):
        brokers.coordinator = 2
        brokers.cut_off = {1}
        await network.call(1, heartbeat())
        async with asyncio.timeout(10):
            answer = await network.call_coordinator("g", heartbeat(), lambda response: int(response.error_code))
        assert answer.throttle_time_ms == 2, "of node 2"


async def test_error_of_the_last_node_that_could_be_asked_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "PATIENCE_S", 0.02)
    async with connected(request_timeout_ms=100) as (brokers, network):
        brokers.silent |= {1, 2}
        with pytest.raises(TimeoutError):
            await network.ask_any(heartbeat())


async def test_ready_connects_in_the_background() -> None:
    async with connected() as (_, network):
        is_connected = asyncio.Event()
        network.on_connection(lambda node: is_connected.set())
        assert network.ready(2) is None
        assert network.ready(2) is None
        await is_connected.wait()
        connection = network.ready(2)
        assert connection is not None
        assert network.ready(2) is connection
        assert network.ready(9) is None


async def test_moved_node_is_found_at_its_new_address() -> None:
    async with connected() as (brokers, network):
        await network.call(2, heartbeat())
        brokers.peers[2], brokers.peers[1] = brokers.peers[1], brokers.peers[2]
        await network.refresh()
        assert (await network.call(2, heartbeat())).throttle_time_ms == 1


async def test_retry_stops_at_limit_or_non_retriable_error() -> None:
    async with connected() as (_, network):
        attempts = []

        async def refused(code: ErrorCode) -> None:
            attempts.append(code)
            raise KafkaError(code)

        with pytest.raises(KafkaError):
            await network.retry(lambda: refused(ErrorCode.NOT_CONTROLLER), timeout_ms=20)
        assert len(attempts) > 1
        attempts.clear()
        with pytest.raises(KafkaError):
            await network.retry(lambda: refused(ErrorCode.INVALID_REQUEST))
        assert len(attempts) == 1


async def test_closed_network_fails_waits_with_connection_error() -> None:
    async with connected() as (brokers, network):
        brokers.hold_metadata = asyncio.Event()
        waiting = asyncio.ensure_future(network.refresh())
        await asyncio.sleep(0.01)
        await network.close()
        with pytest.raises(ConnectionError, match="closed"):
            await waiting
        with pytest.raises(ConnectionError, match="closed"):
            await network.call(1, heartbeat())
