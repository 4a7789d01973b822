"""A topic of orders that is resized under a group, and members of KIP-848 groups that read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch import Admin, Cluster, NewTopic, Producer
from anabranch.clients.group_admin import describe_group
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.stock_members import GROUP, TOPIC, commit

EACH = 10
"""Records in each partition before it is split."""


@asynccontextmanager
async def orders(
    brokers: int = 1, partitions: int = 1, kafka: str = "", **configs: str
) -> AsyncIterator[tuple[Cluster, Admin, Producer]]:
    """A topic with some records with generations in each partition."""
    properties = {name.replace("_", "."): text for name, text in configs.items()}
    async with (
        asyncio.timeout(60),
        Cluster(brokers, kafka=kafka) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics([NewTopic(name=TOPIC, partitions=partitions, configs=properties)])
        await admin.wait_for_topic(TOPIC)
        await fill(producer, partitions)
        yield cluster, admin, producer


async def fill(producer: Producer, partitions: int) -> None:
    for index in range(partitions):
        for number in range(EACH):
            await producer.send(TOPIC, b"%d" % number, partition=index)
    await producer.flush()


async def split_and_merge(cluster: Cluster, admin: Admin) -> None:
    """1 -> 2 -> 1, with records in each key epoch; 1 still drains."""
    for count in (2, 1):
        await admin.create_partitions(TOPIC, count, allow_shrink=True)
        async with Producer(cluster.bootstrap_servers) as producer:
            await fill(producer, count)


async def withheld(admin: Admin) -> dict[int, str]:
    known = (await describe_group(admin.network, GROUP)).withheld
    return {one.partition: reason for one, reason in known.items()}


class Assigned:
    """A member of a KIP-848 group."""

    def __init__(self, admin: Admin, name: str = "till-1", *, holds_gates: bool = False) -> None:
        self.admin, self.name, self.epoch, self.holds_gates = admin, name, 0, holds_gates
        self.owned: set[int] = set()

    async def beat(self) -> set[int]:
        """One heartbeat; what the member has behind it."""
        await self.admin.network.refresh()
        topic_id = self.admin.network.metadata.topics[TOPIC].topic_id
        owned = [TopicPartitions(topic_id=topic_id, partitions=sorted(self.owned))] if self.owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self.epoch, topic_partitions=owned
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 60_000, [TOPIC]
        request.holds_gates = self.holds_gates
        answer = await self.admin.network.call_coordinator(GROUP, request, lambda one: one.error_code)
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {index for row in answer.assignment.topic_partitions for index in row.partitions}
        return self.owned

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=-1)
        answer = await self.admin.network.call_coordinator(GROUP, request, lambda one: one.error_code)
        assert answer.error_code == ErrorCode.NONE, answer

    async def commit(self, offsets: dict[int, int]) -> None:
        await commit(self.admin, offsets, generation=self.epoch, member_id=self.name)
