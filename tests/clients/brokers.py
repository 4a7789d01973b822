"""Peers on real sockets that play brokers as a test tells them to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from anabranch.clients.backoff import Backoff
from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.network import Network
from anabranch.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from anabranch.protocol.errors import ErrorCode
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
        self.cut_off: set[int] = set()
        """Peers that know no topic, and take themselves for the coordinator, which they are not."""

    def answer(self, node: int) -> Callable[[Any], Awaitable[Any]]:
        async def answers(request: Any) -> Any:
            if node in self.silent:
                await asyncio.Event().wait()
            if isinstance(request, MetadataRequest):
                if self.hold_metadata is not None:
                    await self.hold_metadata.wait()
                answer = self.metadata(request)
                for topic in answer.topics if node in self.cut_off else ():
                    topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
                return answer
            if isinstance(request, FindCoordinatorRequest):
                code = self.coordinator_errors.pop(0) if self.coordinator_errors else ErrorCode.NONE
                row = Coordinator(
                    key=request.coordinator_keys[0],
                    node_id=node if node in self.cut_off else self.coordinator,
                    host="127.0.0.1",
                    port=0,
                    error_code=code,
                    error_message=None,
                )
                return FindCoordinatorResponse(coordinators=[row])
            code = self.heartbeat_errors.pop(0) if self.heartbeat_errors else ErrorCode.NONE
            code = ErrorCode.NOT_COORDINATOR if node in self.cut_off else code
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


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
