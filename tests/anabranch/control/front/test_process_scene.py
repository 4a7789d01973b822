"""The stories of the tour act on nodes in processes of their own, and their claims hold."""

from __future__ import annotations

import os
from typing import Any

import pytest

from anabranch.control.client import ControlClient
from anabranch.control.front.process_scene import ProcessScene
from anabranch.control.tour.guide import STORIES, Guide
from tests.anabranch.control.front.fronts import on_agents
from tests.running import running

WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))
REPLICATED = {"default_replication_factor": "3", "min_insync_replicas": "1"}


async def test_split_and_merge_are_played_on_several_agents() -> None:
    async with on_agents(3, **REPLICATED) as on:
        guide, steps = Guide(), list[Any]()
        step = await guide.begin(on.front, "order", ProcessScene)
        while not step["over"]:
            steps.append(step)
            step = await guide.next_step()
        assert "broken" not in step, step
        claims = [claim for one in steps for claim in one["claims"]]
        assert len(claims) == 6 and all(claim["holds"] for claim in claims)
        assert [one["title"] for one in steps][-1] == "A merge"
        await guide.end()


async def test_abandoned_story_removes_its_rules_and_starts_its_nodes() -> None:
    async with on_agents(3, **REPLICATED) as on:
        scene = ProcessScene(on.front)

        async def start(node_id: int) -> None:
            on.nodes[node_id].running = True

        vars(on.actions).update(start=start)
        await scene.rule(name="held", api=["Fetch"], hold=True)
        await scene.kill(2)
        on.nodes[2].running = False
        await scene.close()
        assert await on.front.rules.rows() == []
        assert on.nodes[2].running


@pytest.mark.interop
@pytest.mark.processes
@pytest.mark.zookeeper
def test_six_stories_pass_on_real_processes() -> None:
    if not WHOLE:
        pytest.skip("not `make interop`: the tour on node processes, two minutes, was NOT run")
    with running("up", "--processes", "--zookeeper", "local", "--port", "0", "--control", "127.0.0.1:0") as ready:
        control = ControlClient(ready["control"])
        for story in STORIES:
            steps = list(control.tour.play(story.name))
            assert len(steps) == story.steps, story.name
            claims = [claim for step in steps for claim in step["claims"]]
            assert claims and [claim["text"] for claim in claims if not claim["holds"]] == [], story.name
            assert all(node["running"] and not node["frozen"] for node in control.ask("GET", "/v1/nodes"))
            assert control.ask("GET", "/v1/faults") == []
