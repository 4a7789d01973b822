"""Records are read from the leader up to the high watermark, as a client reads them."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Producer
from anabranch.clients.topic_admin import NewTopic
from anabranch.control.actions import UnknownNode
from anabranch.control.front.front_records import read_partition, topic_named
from anabranch.protocol.topic_partition import TopicPartition
from tests.anabranch.control.front.fronts import on_agents


async def test_last_records_or_those_from_an_offset_on() -> None:
    async with on_agents(1) as on, asyncio.timeout(60), on.front.admin() as admin:
        await on.with_topic()
        topic = await topic_named(admin, "t")
        assert await read_partition(admin, topic, 0, None, 5) == {"start": 0, "end": 0, "records": []}
        async with Producer(on.agents[1].bootstrap_servers, linger_ms=50) as producer:
            for number in range(10):  # one batch of five, twice
                await producer.send("t", b"%d" % number)
                if number % 5 == 4:
                    await producer.flush()

        async def offsets(first: int | None, limit: int) -> list[int]:
            found = await read_partition(admin, topic, 0, first, limit)
            return [one["offset"] for one in found["records"]]

        assert await offsets(None, 3) == [7, 8, 9]
        assert await offsets(4, 3) == [4, 5, 6]
        assert await offsets(9, 3) == [9]
        assert await offsets(10, 3) == []
        await admin.delete_records({TopicPartition("t", 0): 5})
        assert await offsets(0, 2) == [5, 6]


async def test_unknown_topic_and_partition_are_refused() -> None:
    async with on_agents(1) as on, asyncio.timeout(60), on.front.admin() as admin:
        with pytest.raises(UnknownNode, match="there is no topic none"):
            await topic_named(admin, "none")
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await admin.wait_for_topic("t", replicas=1)
        with pytest.raises(UnknownNode, match="t has no partition 3"):
            await read_partition(admin, await topic_named(admin, "t"), 3, None, 5)
