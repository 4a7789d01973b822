"""A transaction that is open during splits and merges ends in all partitions, in key order.

Method: a real cluster; one transaction writes records of each key before and after each resize; readers of committed
records in a group, whose gates open on commits, look on from before the first record.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.topic_partition import TopicPartition

TOPIC = "t"
KEYS = [b"k%d" % number for number in range(16)]
RESIZES = (4, 3, 1)


async def send(producer: Producer, step: int) -> None:
    for key in KEYS:
        await producer.send(TOPIC, b"%d" % step, key)
    await producer.flush()


def sort_into(found: dict[bytes, list[int]], records: dict[TopicPartition, list[object]]) -> None:
    for rows in records.values():
        for record in rows:
            found.setdefault(record.key, []).append(int(record.value))  # type: ignore[attr-defined]


@pytest.mark.parametrize("commit", [True, False])
async def test_transaction_over_resizes_ends_in_every_partition(commit: bool) -> None:
    async def story(cluster: Cluster, admin: Admin) -> None:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=2, replication_factor=3)])
        await admin.wait_for_topic(TOPIC, replicas=3)
        found: dict[bytes, list[int]] = {}
        async with (
            Producer(cluster.bootstrap_servers, transactional_id="tx") as producer,
            Consumer(
                TOPIC,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                fetch_max_wait_ms=50,
            ) as consumer,
        ):
            await producer.begin_transaction()
            await send(producer, 0)
            for step, count in enumerate(RESIZES, 1):
                await admin.create_partitions(TOPIC, count, allow_shrink=True)
                await send(producer, step)
                sort_into(found, await consumer.getmany(timeout_ms=50))
            assert found == {}, "nothing is committed yet, on either side of a boundary"
            await (producer.commit_transaction() if commit else producer.abort_transaction())
            async with producer.transaction():
                await send(producer, 9)
            expected = [0, 1, 2, 3, 9] if commit else [9]
            while sum(map(len, found.values())) < len(KEYS) * len(expected):
                sort_into(found, await consumer.getmany(timeout_ms=200))
                await consumer.commit()
            assert found == dict.fromkeys(KEYS, expected)

    async with (
        asyncio.timeout(60),
        Cluster(brokers=3, seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await story(cluster, admin)
