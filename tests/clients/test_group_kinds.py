"""`anabranch groups` and the control plane show groups of every type with their positions.

Method: one group of each kind in one cluster; the commands, as from a shell, and the rows of the control plane.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner, Result

from anabranch import Admin, Cluster, Consumer, NewTopic, Producer
from anabranch.cli.main import cli
from anabranch.clients.group_admin import commit_offsets, delete_group, list_groups
from anabranch.control import state
from anabranch.dashboard.collectors.cluster_rows import ClusterRows
from anabranch.dashboard.collectors.shared_standings import shared_standings
from anabranch.dashboard.feed import Feed
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.anabranch.dashboard.test_feed import Page
from tests.anabranch.inspect.test_draining import joining
from tests.broker.coordinators.share_partitions.sharing import ACCEPT, Member, members
from tests.broker.serving import until

RECORDS = 10


async def command(cluster: Cluster, *words: str) -> Result:
    at = ("--bootstrap-servers", cluster.bootstrap_servers)
    return await asyncio.to_thread(lambda: CliRunner().invoke(cli, ["groups", *words, *at]))


async def rows(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    result = await command(cluster, *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


@asynccontextmanager
async def with_groups() -> AsyncIterator[tuple[Cluster, Member]]:
    """Topic "t" of one partition on each of two brokers, with ten records in each, and a group of each kind."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(2, kafka="4.2"))
        await stack.enter_async_context(asyncio.timeout(120))
        servers = cluster.bootstrap_servers
        admin = await stack.enter_async_context(Admin(servers))
        await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=1)])
        await admin.wait_for_topic("t")
        (sharer,) = await stack.enter_async_context(members(cluster, "sharer"))
        sharer.group = "sharers"
        await sharer.join(2)
        leaders = [
            row["leader"] for topic in state.topics(cluster) if topic["topic"] == "t" for row in topic["partitions"]
        ]
        for leader in leaders:
            sharer.session_epoch = 0
            await sharer.fetch(leader)
        async with Producer(servers) as producer:
            for number in range(2 * RECORDS):
                await producer.send("t", b"x", partition=number % 2)
        for index, leader in enumerate(leaders):
            sharer.session_epoch = 1
            assert (await sharer.fetch(leader)).acquired
            assert await sharer.acknowledge(0, 3, ACCEPT, index=index, broker=leader) == (0, 0)
            assert await sharer.acknowledge(6, 7, ACCEPT, index=index, broker=leader) == (0, 0)
        for name, protocol in (("members", "classic"), ("dealt", "consumer")):
            settings = {"group_id": name, "group_protocol": protocol, "auto_offset_reset": "earliest"}
            consumer = await stack.enter_async_context(Consumer("t", bootstrap_servers=servers, **settings))  # type: ignore[arg-type]
            await consumer.getone()
            await consumer.commit()
        await commit_offsets(admin.network, "words", {TopicPartition("t", 1): 1})
        response = await admin.network.call_coordinator(
            "words", joining("words", "a"), lambda answer: answer.error_code
        )
        assert response.error_code == ErrorCode.NONE, response
        yield cluster, sharer


async def test_groups_of_every_kind_are_listed_described_and_deleted() -> None:
    async with with_groups() as (cluster, sharer):
        listed = {one["group"]: one["type"] for one in await rows(cluster, "list")}
        assert listed == {"dealt": "consumer", "members": "classic", "sharers": "share", "words": "streams"}
        assert [one["group"] for one in await rows(cluster, "list", "--type", "share")] == ["sharers"]

        (shared,) = await rows(cluster, "describe", "sharers")
        assert (shared["type"], shared["state"], shared["protocol"]) == ("share", "Stable", "simple")
        assert shared["epoch"] == shared["assignment_epoch"] == shared["members"][0]["epoch"]
        assert shared["members"][0]["partitions"] == ["t-0", "t-1"]
        found = {one["partition"]: (one["committed"], one["end"], one["lag"]) for one in shared["partitions"]}
        assert found == {0: (4, 10, 4), 1: (4, 10, 4)}, "also of the partition that the coordinator does not lead"
        text = (await command(cluster, "describe", "sharers")).output
        assert "share group, Stable" in text and "start            4  end           10  lag          4" in text

        (words,) = await rows(cluster, "describe", "words")
        assert (words["type"], words["epoch"] >= 1, words["members"][0]["epoch"] >= 1) == ("streams", True, True)
        assert (words["partitions"][-1]["committed"], words["partitions"][-1]["lag"]) == (1, 9)
        (dealt,) = await rows(cluster, "describe", "dealt")
        assert (dealt["type"], dealt["protocol"], len(dealt["members"])) == ("consumer", "uniform", 1)
        (classic,) = await rows(cluster, "describe", "members")
        assert (classic["type"], classic["epoch"]) == ("classic", None)
        missing = await command(cluster, "describe", "nobody")
        assert (missing.exit_code, "GROUP_ID_NOT_FOUND" in missing.output) == (1, True)
        assert "a share group has no gates" in (await command(cluster, "gates", "sharers")).output
        refused = await command(cluster, "reset", "sharers", "t", "--to", "earliest")
        assert (refused.exit_code, "sharers is a share group" in refused.output) == (2, True)

        kept = await command(cluster, "delete", "sharers")
        assert (kept.exit_code, "NON_EMPTY_GROUP" in kept.output) == (1, True)
        await sharer.beat(-1)
        assert (await command(cluster, "delete", "sharers")).output == "deleted sharers\n"
        assert "sharers" not in {one["group"] for one in await rows(cluster, "list")}
        await until(lambda: "sharers" not in shared_standings(cluster))


async def test_control_plane_shows_positions_of_every_group_kind() -> None:
    async with with_groups() as (cluster, _):
        found = {row["group"]: row for row in state.groups(cluster)}
        assert {name: row["type"] for name, row in found.items()} == {
            "dealt": "consumer",
            "members": "classic",
            "sharers": "share",
            "words": "streams",
        }
        assert found["sharers"]["offsets"] == [
            {"topic": "t", "partition": 0, "start": 4, "end": 10, "lag": 4},
            {"topic": "t", "partition": 1, "start": 4, "end": 10, "lag": 4},
        ]
        assert (found["sharers"]["lag"], found["words"]["lag"]) == (8, 19)
        json.dumps(found)
        page, feed = Page(), Feed(partial(ClusterRows, cluster), tell=lambda kind, **detail: None)
        reading = asyncio.create_task(page.read(feed))
        try:
            await page.until(lambda rows: rows["commits/sharers"] == {"t": {"0": 4, "1": 4}})
            assert page.rows["group/sharers"]["protocol"] == "share"
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await feed.stop()


async def test_group_deletion_whose_response_is_lost_succeeds() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t")])
        await commit_offsets(admin.network, "g", {TopicPartition("t", 0): 0})
        lost = cluster.faults.add(api="DeleteGroups", times=1, disconnect="after")
        await delete_group(admin.network, "g")
        assert lost.hits == 1 and await list_groups(admin.network) == {}
        with pytest.raises(KafkaError) as refused:
            await delete_group(admin.network, "g")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
