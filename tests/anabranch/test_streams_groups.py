"""Goal: whoever resizes a topic that Kafka Streams reads is told what that means, and nobody else is.

Method: an instance of ours under the client id that Kafka Streams gives its threads; by it Java is known.
"""

from __future__ import annotations

import re
from pathlib import Path

from anabranch.streams_groups import streams_lines
from tests.clients.streams.world import counts, streams_world, until


async def test_the_plan_names_java_members_and_who_waits_for_them(tmp_path: Path) -> None:
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
                assert "; 1 of this package in the group wait for it" in plan
                assert "stop its instances before the resize" in plan
                assert await told("out") == "", "which nobody reads"
