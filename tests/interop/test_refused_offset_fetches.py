"""Reactions of clients to a refused OffsetFetch; docs/faults.md describes them.

aiokafka begins anew where it was refused as a whole. The error stands beside the partitions, of which there are none
then: it looks at theirs only, and takes what is missing for what was never committed. librdkafka never asks again: the
member of examples/members, which is given to chaos runs, has it ask.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from anabranch import Admin, Cluster, NewTopic, Producer
from anabranch.faults.rule import Rule
from anabranch.protocol.topic_partition import TopicPartition

pytestmark = pytest.mark.interop

TOPIC, GROUP = "orders", "readers"
PARTITIONS, BEFORE = 3, 5
OFFSETS = TopicPartition("__consumer_offsets", 0)
NEW = {(index, BEFORE) for index in range(PARTITIONS)}
"""What a group has still to be handed that has committed everything else."""
EVERYTHING = {(index, offset) for index in range(PARTITIONS) for offset in range(BEFORE + 1)}


@asynccontextmanager
async def read_once(brokers: int, kafka: str = "") -> AsyncIterator[tuple[Cluster, Admin]]:
    """A topic that a group has read and committed, and one record more in each partition."""
    async with (
        asyncio.timeout(120),
        Cluster(brokers, properties={"offsets.topic.num.partitions": "1"}, kafka=kafka) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics([NewTopic(name=TOPIC, partitions=PARTITIONS)])
        await admin.wait_for_topic(TOPIC)

        async def send(count: int) -> None:
            for index in range(PARTITIONS):
                for _ in range(count):
                    await producer.send(TOPIC, b"x/0", partition=index)
            await producer.flush()

        await send(BEFORE)
        async with member(cluster) as first:
            assert await handed(first, EVERYTHING - NEW) == EVERYTHING - NEW
        await send(1)
        yield cluster, admin


def member(cluster: Cluster) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=50,
    )


async def handed(consumer: AIOKafkaConsumer, wanted: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """All that it is handed until it was handed this."""
    found: set[tuple[int, int]] = set()
    while not wanted <= found:
        for partition, records in (await consumer.getmany(timeout_ms=200)).items():
            found |= {(one.partition, one.offset) for one in records}
            await consumer.commit({partition: records[-1].offset + 1})
    return found


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", None])
async def test_refused_offset_fetch_is_taken_for_missing_commits(error: str | None) -> None:
    async with read_once(1) as (cluster, _):
        rule = cluster.faults.add(Rule(api=("OffsetFetch",), error=error, times=1)) if error else None
        async with member(cluster) as second:
            again = await handed(second, NEW) - NEW
        assert bool(again) == (error is not None)
        assert rule is None or rule.hits == 1


async def test_coordinator_that_moves_during_assignment_causes_redelivery() -> None:
    """The broker has moved the group when it gets the request; no response is faked."""
    async with read_once(3) as (cluster, admin):
        rule = cluster.faults.add(Rule(api=("OffsetFetch",), hold=True))
        second = member(cluster)
        starting = asyncio.create_task(second.start())
        await rule.wait_hit()
        old = (await admin.describe_topic(OFFSETS.topic)).partitions[0]
        await admin.alter_partition_reassignments({OFFSETS: sorted(old.replicas, key=lambda one: one == old.leader)})
        while (await admin.describe_topic(OFFSETS.topic)).partitions[0].leader == old.leader:
            await admin.elect_leaders([OFFSETS])
            await admin.network.refresh()
        rule.release()
        rule.remove()
        await starting
        try:
            assert await handed(second, NEW) > NEW, "what was read before comes again"
        finally:
            await asyncio.wait_for(second.stop(), 30)


def written_down(file: Path) -> set[tuple[int, int]]:
    rows = map(json.loads, file.read_text().splitlines() if file.exists() else ())
    return {(row["partition"], row["offset"]) for row in rows}


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT"])
async def test_librdkafka_member_retries_refused_offset_fetch(tmp_path: Path, kind: str, error: str) -> None:
    """It gets all new records, whatever the refusal. A chaos run found it stuck, when it retried only after
    NOT_COORDINATOR.
    """
    file = tmp_path / "handed.jsonl"
    program = Path(__file__).parents[2] / "examples/members/librdkafka.py"
    async with read_once(1, "4.1") as (cluster, _):
        rule = cluster.faults.add(Rule(api=("OffsetFetch",), error=error, times=1))
        words = (str(program), kind, cluster.bootstrap_servers, TOPIC, GROUP, str(file))
        process = await asyncio.create_subprocess_exec(sys.executable, *words)
        try:
            async with asyncio.timeout(60):
                while not written_down(file) >= NEW:  # noqa: ASYNC110 -- another process sets no event here
                    await asyncio.sleep(0.05)
        finally:
            process.kill()
            await process.wait()
        assert rule.hits == 1
