"""Records are read from the leader up to the high watermark, as a client reads them."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Producer
from anabranch.clients.metadata import NO_LEADER
from anabranch.clients.topic_admin import NewTopic
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.front.front_records import read_partition, search_topic, topic_named
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


async def test_search_finds_records_of_all_nodes_newest_first() -> None:
    async with on_agents(2) as on, asyncio.timeout(60), on.front.admin() as admin:
        await on.with_topic(partitions=4)
        topic = await topic_named(admin, "t")
        assert len({one.leader for one in topic.partitions.values()}) == 2
        async with Producer(on.agents[1].bootstrap_servers) as producer:
            for number in range(40):
                await producer.send_and_wait(
                    "t", b"%d" % number, b"k%d" % (number % 5), partition=number % 4, timestamp_ms=number
                )

        async def found(**query: str) -> tuple[list[int], str]:
            rows = await search_topic(admin, topic, query)
            return [one["timestamp"] for one in rows["records"]], rows["before"]

        assert await found() == ([*range(39, -1, -1)], "")
        assert await found(key="k3") == ([38, 33, 28, 23, 18, 13, 8, 3], "")
        assert await found(value="7", partition="3") == ([27, 7], "")
        newest, before = await found(limit="6")
        assert newest == [39, 38, 37, 36, 35, 34]
        assert (await found(limit="3", before=before))[0] == [33, 32, 31]
        with pytest.raises(UnknownNode, match="t has no partition 9"):
            await found(partition="9")
        await admin.delete_records({TopicPartition("t", 0): 10})
        assert await found(partition="0") == ([], "")


async def test_search_names_partitions_without_leader() -> None:
    async with on_agents(2) as on, asyncio.timeout(60), on.front.admin() as admin:
        await on.with_topic(partitions=2)
        await on.agents[2].node.stop()
        leaders = {}
        while NO_LEADER not in leaders.values():
            topic = await topic_named(admin, "t")
            leaders = {index: one.leader for index, one in topic.partitions.items()}
        gone = next(index for index, leader in leaders.items() if leader == NO_LEADER)
        found = await search_topic(admin, topic, {})
        assert (found["without_leader"], found["before"]) == ([gone], "")
        with pytest.raises(ActionRefused, match=f"t-{gone} has no leader now"):
            await search_topic(admin, topic, {"partition": str(gone)})


async def test_unknown_topic_and_partition_are_refused() -> None:
    async with on_agents(1) as on, asyncio.timeout(60), on.front.admin() as admin:
        with pytest.raises(UnknownNode, match="there is no topic none"):
            await topic_named(admin, "none")
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await admin.wait_for_topic("t", replicas=1)
        with pytest.raises(UnknownNode, match="t has no partition 3"):
            await read_partition(admin, await topic_named(admin, "t"), 3, None, 5)
