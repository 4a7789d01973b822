"""A client finds the cluster, refreshes metadata without duplicates, and survives lost connections.

Method: peers on real sockets that play brokers as a test tells them to.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from anabranch.clients import network as network_module
from anabranch.clients.backoff import Backoff
from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.network import GROUP, Network
from anabranch.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.peer import Peer, serve


class Brokers:
    """Peers 1, 2, ... that answer Metadata with each other, and Heartbeat with their own number."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        self.leader = 1
        self.topic_error = ErrorCode.NONE
        self.controller = 1
        self.heartbeat_errors: list[ErrorCode] = []
        self.coordinator = 1
        self.coordinator_errors: list[ErrorCode] = []
        self.hold_metadata: asyncio.Event | None = None
        self.silent: set[int] = set()

    def answer(self, node: int) -> Callable[[Any], Awaitable[Any]]:
        async def answers(request: Any) -> Any:
            if node in self.silent:
                await asyncio.Event().wait()
            if isinstance(request, MetadataRequest):
                if self.hold_metadata is not None:
                    await self.hold_metadata.wait()
                return self.metadata(request)
            if isinstance(request, FindCoordinatorRequest):
                code = self.coordinator_errors.pop(0) if self.coordinator_errors else ErrorCode.NONE
                row = Coordinator(
                    key=request.coordinator_keys[0],
                    node_id=self.coordinator,
                    host="127.0.0.1",
                    port=0,
                    error_code=code,
                    error_message=None,
                )
                return FindCoordinatorResponse(coordinators=[row])
            code = self.heartbeat_errors.pop(0) if self.heartbeat_errors else ErrorCode.NONE
            return HeartbeatResponse(throttle_time_ms=node, error_code=code)

        return answers

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=0,
            replica_nodes=[1],
            isr_nodes=[1],
        )
        topics = [
            MetadataResponseTopic(error_code=self.topic_error, name=one.name, partitions=[partition])
            for one in request.topics or []
        ]
        brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=peer.port) for node, peer in self.peers.items()
        ]
        return MetadataResponse(brokers=brokers, controller_id=self.controller, cluster_id="c", topics=topics)

    def count(self, kind: type[Any]) -> int:
        return sum(isinstance(request.body, kind) for peer in self.peers.values() for request in peer.seen)


@asynccontextmanager
async def connected(*, nodes: int = 2, **settings: Any) -> AsyncIterator[tuple[Brokers, Network]]:
    """Peers that play brokers, and a network that knows the first of them; it leaves no task behind."""
    brokers = Brokers()
    async with AsyncExitStack() as stack:
        for node in range(1, nodes + 1):
            brokers.peers[node] = await stack.enter_async_context(serve(brokers.answer(node)))
        config = NetworkConfig(
            bootstrap_servers=parse_servers([brokers.peers[1].address]),
            retry_backoff=Backoff(initial_ms=1, limit_ms=5),
            **settings,
        )
        network = Network(config, random.Random(1))
        try:
            async with asyncio.timeout(60):
                await network.start()
                yield brokers, network
        finally:
            await network.close()
        own = {task for peer in brokers.peers.values() for task in peer.tasks}
        assert asyncio.all_tasks() - own == {asyncio.current_task()}, "a task was left behind"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask no second node because the machine is slow: tests count the requests."""
    monkeypatch.setattr(network_module, "PATIENCE_S", 60)


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def error_of(response: HeartbeatResponse) -> int:
    return response.error_code


async def test_long_bootstrap_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(network_module, "QUIET_S", 0.0)
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


async def test_each_node_has_one_connection() -> None:
    async with connected() as (brokers, network):
        await asyncio.gather(*(network.call(2, heartbeat()) for _ in range(20)))
        assert len(brokers.peers[2].writers) == 1


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


async def test_moved_cluster_is_found_through_bootstrap_address() -> None:
    async with connected(nodes=1) as (brokers, network):
        here = brokers.peers
        brokers.peers = {9: Peer(port=1)}
        assert set((await network.refresh()).nodes) == {9}
        brokers.peers = here
        assert set((await network.refresh()).nodes) == {1}


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


async def test_closed_network_does_not_bootstrap_again() -> None:
    async with connected() as (brokers, network):
        await network.close()
        before = brokers.count(MetadataRequest)
        with pytest.raises(ConnectionError, match="closed"):
            await network.refresh()
        with pytest.raises(ConnectionError, match="closed"):
            await network.wait_for(lambda metadata: False)
        assert brokers.count(MetadataRequest) == before
