"""Committed offsets with a pending transactional one, and those of a leader that is not known yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from anabranch import Consumer, Producer, TopicPartition
from anabranch.clients import group_offsets
from anabranch.clients.consumer.committed_offsets import CommittedOffsets
from anabranch.clients.metadata import NO_LEADER
from anabranch.clients.network import Network
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.consumer.groups import GROUP, TOPIC, cluster_and_admin, make_topic, send

WHERE = TopicPartition(TOPIC, 0)
OTHER = TopicPartition(TOPIC, 1)


class Coordinator:
    """Answers each request with the next error codes of the two partitions; asks again as a network does."""

    def __init__(self, *codes: tuple[ErrorCode, ErrorCode]) -> None:
        self._codes = list(codes)
        self.asked: list[OffsetFetchRequest] = []
        self.awaited: dict[TopicPartition, int] = {}

    async def call_coordinator(self, key: str, request: OffsetFetchRequest, error_of: Any) -> OffsetFetchResponse:
        assert key == GROUP
        self.asked.append(request)
        rows = [
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=10 + index if code is ErrorCode.NONE else -1,
                committed_leader_epoch=3,
                metadata="",
                error_code=code,
            )
            for index, code in enumerate(self._codes.pop(0))
        ]
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name=TOPIC, partitions=rows)])

    async def retry(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await operation()
            except KafkaError as error:
                if not error.code.retriable:
                    raise

    def await_epochs(self, seen: dict[TopicPartition, int]) -> None:
        self.awaited |= seen


def committed_at(coordinator: Coordinator) -> CommittedOffsets:
    return CommittedOffsets(cast(Network, cast(Any, coordinator)), GROUP)


STABLE, PENDING = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT


async def test_partition_with_a_pending_offset_is_left_out() -> None:
    coordinator = Coordinator((PENDING, STABLE))
    assert await committed_at(coordinator).fetch([WHERE, OTHER]) == {OTHER: 11}
    assert coordinator.asked[0].require_stable
    assert coordinator.awaited == {WHERE: 3, OTHER: 3}


async def test_nothing_is_asked_about_no_partition() -> None:
    coordinator = Coordinator()
    assert await committed_at(coordinator).fetch([]) == {}
    assert coordinator.asked == []


async def test_pending_offset_is_waited_for() -> None:
    coordinator = Coordinator((PENDING, STABLE), (PENDING, STABLE), (STABLE, STABLE))
    assert await committed_at(coordinator).when_stable(WHERE) == 10
    assert len(coordinator.asked) == 3


async def test_refused_partition_is_an_error() -> None:
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError, match="offset of ") as error:
        await committed_at(Coordinator((STABLE, refused))).fetch([WHERE, OTHER])
    assert error.value.code is refused


async def test_member_uses_no_leader_that_is_older_than_the_committed_epoch() -> None:
    """A leader that was frozen, and its metadata, are old. It would refuse the offset as out of range (KIP-320)."""
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 1, replicas=3)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 5)
        network = admin._network
        await network.call_coordinator(
            GROUP,
            group_offsets.commit_request(GROUP, {WHERE: 3}, leader_epoch_of=lambda *_: 1),
            lambda _: ErrorCode.NONE,
        )
        settings = {"group_id": GROUP, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
        async with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:
            polled = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
            async with asyncio.timeout(60):
                metadata = await consumer._network.wait_for(lambda metadata: bool(metadata.awaited_epochs))
            assert metadata.leader(*WHERE) == NO_LEADER and metadata.obstacle(*WHERE).startswith(f"{WHERE} has a newer")
            await cluster.crash_broker((await network.wait_for(lambda metadata: True)).leader(*WHERE))
            assert [record.offset for record in (await polled)[WHERE]] == [3, 4]
            await consumer.commit()
            metadata = consumer._network.metadata
            assert metadata.awaited_epochs == {} and metadata.leader_epoch(*WHERE) == 1
            in_transactions = consumer.group_metadata().leader_epoch_of
            assert in_transactions is not None and in_transactions(*WHERE) == 1
        assert await committed_epoch(network) == 1


async def committed_epoch(network: Network) -> int:
    request = group_offsets.fetch_request(GROUP, [WHERE], require_stable=True)
    ((_, row),) = group_offsets.fetched_rows(await network.call_coordinator(GROUP, request, group_offsets.fetch_error))
    epoch: int = row.committed_leader_epoch
    return epoch
