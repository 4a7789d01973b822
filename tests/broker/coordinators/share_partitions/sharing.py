"""A minimal share group member: heartbeats, fetches, acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis import share_acknowledge, share_fetch
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.share_acknowledge import ShareAcknowledgeRequest
from anabranch.protocol.apis.share_fetch import ShareFetchRequest
from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records

TOPIC = "t"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@dataclass
class Got:
    """What one ShareFetch has brought."""

    acquired: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last offset, and how often they were delivered."""
    values: dict[int, bytes] = field(default_factory=dict)
    """Offset -> value, of what was acquired."""
    batches: list[int] = field(default_factory=list)
    """The base offsets of the batches that came."""
    error: int = 0
    errors: dict[int, int] = field(default_factory=dict)
    """Partition -> error code."""
    acknowledge_errors: dict[int, int] = field(default_factory=dict)


class Member:
    """One member, which reads one topic from one broker."""

    def __init__(self, cluster: Cluster, member_id: str, group: str = "g") -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.group = group
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: dict[bytes, list[int]] = {}
        self._connections: dict[int, Connection] = {}

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def at(self, broker: int) -> Connection:
        known = self._connections.get(broker)
        if known is None or known.closed:
            where = self.cluster.nodes[broker]
            known = self._connections[broker] = await Connection.open("127.0.0.1", where.port, client_id=self.member_id)
        return known

    async def coordinator(self) -> Connection:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        while True:
            found = (await (await self.at(min(self.cluster.nodes))).call(request, version=6)).coordinators[0]
            if found.error_code == ErrorCode.NONE and found.node_id in self.cluster.nodes:
                return await self.at(found.node_id)
            await asyncio.sleep(0.01)

    async def beat(self, epoch: int | None = None, topics: list[str] | None = None) -> Any:
        """One heartbeat; the first one joins."""
        epoch = self.epoch if epoch is None else epoch
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics if topics is not None else [TOPIC] if epoch == 0 else None,
        )
        response = await (await self.coordinator()).call(request)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {row.topic_id: list(row.partitions) for row in response.assignment.topic_partitions}
        return response

    async def join(self, partitions: int = 1) -> None:
        """Be a member that has so many partitions."""
        while sum(map(len, self.assigned.values())) != partitions:
            response = await self.beat()
            assert response.error_code in (
                ErrorCode.NONE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            ), response
            await asyncio.sleep(0.01)

    async def fetch(
        self,
        broker: int = 1,
        *,
        said: dict[int, list[tuple[int, int, list[int]]]] | None = None,
        wait_ms: int = 0,
        session_epoch: int | None = None,
        **more: Any,
    ) -> Got:
        """Acquire records, and acknowledge others, by partition."""
        topics = []
        for topic_id, indexes in self.assigned.items():
            rows = [
                share_fetch.FetchPartition(
                    partition_index=index,
                    acknowledgement_batches=[
                        share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                        for first, last, types in (said or {}).get(index, [])
                    ],
                )
                for index in indexes
            ]
            topics.append(share_fetch.FetchTopic(topic_id=topic_id, partitions=rows))
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch if session_epoch is None else session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            topics=topics,
            forgotten_topics_data=[],
            **{"max_records": 500, "batch_size": 500, **more},
        )
        response = await (await self.at(broker)).call(request)
        got = Got(error=response.error_code)
        if response.error_code == ErrorCode.NONE:
            self.session_epoch += 1
        for topic in response.responses:
            for row in topic.partitions:
                got.errors[row.partition_index] = row.error_code
                got.acknowledge_errors[row.partition_index] = row.acknowledge_error_code
                mine = [(one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records]
                got.acquired += mine
                for position, header in iter_batches(row.records):
                    got.batches.append(header.base_offset)
                    for record in iter_records(row.records, position):
                        if any(first <= record.offset <= last for first, last, _ in mine):
                            got.values[record.offset] = record.value or b""
        return got

    async def acknowledge_all(self, said: dict[int, list[tuple[int, int, list[int]]]], broker: int = 1) -> Got:
        """Acknowledge records of several partitions."""
        (topic_id,) = self.assigned
        rows = [
            share_acknowledge.AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    share_acknowledge.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=types
                    )
                    for first, last, types in batches
                ],
            )
            for index, batches in said.items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=rows)],
        )
        response = await (await self.at(broker)).call(request)
        if response.error_code == ErrorCode.NONE:
            self.session_epoch += 1
        errors = {row.partition_index: row.error_code for topic in response.responses for row in topic.partitions}
        return Got(error=response.error_code, acknowledge_errors=errors)

    async def acknowledge(
        self, first: int, last: int, *types: int, index: int = 0, broker: int = 1, session_epoch: int | None = None
    ) -> tuple[int, int]:
        """Acknowledge records; return the error codes of request and partition."""
        (topic_id,) = self.assigned
        batch = share_acknowledge.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=list(types)
        )
        row = share_acknowledge.AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch if session_epoch is None else session_epoch,
            is_renew_ack=RENEW in types,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[row])],
        )
        response = await (await self.at(broker)).call(request)
        if response.error_code != ErrorCode.NONE:
            return response.error_code, 0
        self.session_epoch += 1
        return 0, response.responses[0].partitions[0].error_code


@asynccontextmanager
async def sharing(brokers: int = 1, partitions: int = 1, **properties: str) -> AsyncIterator[Cluster]:
    """A cluster that shows itself as Kafka 4.2, with a topic."""
    properties = {name.replace("_", "."): text for name, text in properties.items()}
    async with Cluster(brokers, kafka="4.2", properties=properties) as cluster, asyncio.timeout(120):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, partitions=partitions)])
            await admin.wait_for_topic(TOPIC)
        yield cluster


@asynccontextmanager
async def members(cluster: Cluster, *names: str) -> AsyncIterator[list[Member]]:
    made = [Member(cluster, name) for name in names]
    try:
        yield made
    finally:
        for one in made:
            await one.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a cluster comes to; `sharing` limits it."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


async def send(cluster: Cluster, count: int) -> None:
    """Records 0, 1, 2 ..., each in a batch of its own."""
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send_and_wait(TOPIC, b"%d" % number)
