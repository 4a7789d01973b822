"""Stored records are delivered, even if records of parents are deleted while gates wait for them (D23).

Each test runs a real cluster. A topic grows from one partition to two and shrinks again, so that partition 0 has three
key epochs, and the last of them waits for partition 1, which waits for the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer, TopicPartition
from anabranch.cluster.in_process import Cluster
from tests.clients.consumer.groups import GROUP, TOPIC, cluster_and_admin, resize, send

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@asynccontextmanager
async def split_and_merged_topic(**properties: str) -> AsyncIterator[tuple[Cluster, Admin]]:
    async with cluster_and_admin(brokers=2, **properties) as (cluster, admin):
        await admin.create_topics([NewTopic(name=TOPIC, assignments={0: [1, 2]})])
        await admin.wait_for_topic(TOPIC, replicas=2)
        async with Producer(cluster.bootstrap_servers) as producer:
            await send(producer, admin, 40)
            await resize(admin, 2)
            await send(producer, admin, 40)
            await resize(admin, 1)
            await send(producer, admin, 40)
        yield cluster, admin


async def move_leadership(admin: Admin) -> None:
    """Let broker 2 lead the first partition, and wait until the cluster shows it."""
    await admin.alter_partition_reassignments({FIRST: [2, 1]})
    await admin.elect_leaders([FIRST])
    await admin.wait_until(lambda metadata: metadata.leader(*FIRST) == 2, TOPIC)


async def stored(cluster: Cluster, admin: Admin) -> set[tuple[int, int]]:
    """Every record that a reader from the log starts finds."""
    found: set[tuple[int, int]] = set()
    async with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, ordered_delivery=False) as consumer:
        partitions = [TopicPartition(TOPIC, index) for index in (await admin.describe_topic(TOPIC)).partitions]
        ends = await consumer.end_offsets(partitions)
        await consumer.getmany(timeout_ms=0)
        await consumer.seek_to_beginning()
        while any(consumer.position(one) < ends[one] for one in partitions):
            for rows in (await consumer.getmany(timeout_ms=500)).values():
                found |= {(row.partition, row.offset) for row in rows}
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("automatic", [True, False])
async def test_group_reads_on_when_parent_head_is_deleted_and_leader_changes(automatic: bool, protocol: str) -> None:
    async with split_and_merged_topic(kafka_version="4.1") as (cluster, admin):
        found: set[tuple[int, int]] = set()
        async with Consumer(
            TOPIC,
            group_id=GROUP,
            group_protocol=protocol,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            enable_auto_commit=automatic,
        ) as consumer:

            async def read() -> None:
                for rows in (await consumer.getmany(timeout_ms=100)).values():
                    found.update((row.partition, row.offset) for row in rows)
                if not automatic:
                    await consumer.commit()

            while not consumer.assignment():
                await read()
            consumer.pause(SECOND)
            while not any(gate.key_epoch.partition == 0 for gate in consumer.gates()):
                await read()  # partition 0 stands before its last key epoch, whose records are fetched

            end = (await consumer.end_offsets([FIRST]))[FIRST]
            await admin.delete_records({FIRST: end - 5})
            await move_leadership(admin)
            consumer.resume(SECOND)
            expected = await stored(cluster, admin)
            async with asyncio.timeout(60):
                while not expected <= found:
                    await read()
