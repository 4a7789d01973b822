"""A resize plan warns about Kafka Streams groups that read the topic.

Method: an instance of ours under the client id that Kafka Streams gives its threads; by it Java is known.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, Cluster, NewTopic
from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from anabranch.resize.streams_groups import streams_lines
from tests.broker.coordinators.streams_groups.world import COUNTS, PLAIN
from tests.clients.streams.world import counts, streams_world, until


async def test_plan_names_java_members_and_waiting_groups(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:

        async def told(topic: str = "in") -> str:
            return "\n".join(await streams_lines(world.admin, topic))

        assert await told() == ""
        async with world.instance(counts(), "ours") as ours:
            await until(lambda: len(ours.tasks) == 4, "the first instance has all tasks")
            assert await told() == "", "nothing is wrong with ours"
            async with world.instance(counts(), "java", client_id="app-0815-StreamThread-1-consumer") as java:
                await until(lambda: bool(java.tasks), "the second instance has some of them")
                plan = await told()
                assert re.search(
                    r"reads the topic in the group app: app-0815-StreamThread-1-consumer/?[0-9.]+$", plan, re.M
                )
                assert "; 1 Python members of the group wait" in plan
                assert "stop its instances before the resize" in plan
                assert await told("out") == "", "which nobody reads"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (PLAIN, "it has no state, and gets one task per partition"),
        (COUNTS, "its internal topics would have the wrong partition count: it fails"),
    ],
    ids=["keeps nothing", "keeps counts"],
)
async def test_plan_names_streams_groups_assigned_by_broker(parts: Any, told: str) -> None:
    async with Cluster(1, kafka="4.2") as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=2), NewTopic(name="u")])
        await admin.wait_for_topic("t")
        request = StreamsGroupHeartbeatRequest(
            group_id="app",
            member_id="thread",
            member_epoch=0,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=1000,
            topology=Topology(epoch=0, subtopologies=list(parts)),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        await admin.network.call_coordinator("app", request, lambda answer: answer.error_code)
        plan = "\n".join(await streams_lines(admin, "t"))
        assert "reads the topic in the group app: " in plan and told in plan
        assert await streams_lines(admin, "u") == []
        leaving = StreamsGroupHeartbeatRequest(
            group_id="app", member_id="thread", member_epoch=-1, endpoint_information_epoch=-1
        )
        await admin.network.call_coordinator("app", leaving, lambda answer: answer.error_code)
        assert await streams_lines(admin, "t") == [], "nobody is there"
