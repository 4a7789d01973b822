"""Every story runs to its end on a live cluster, its claims hold, and the cluster is healthy afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.clock.cluster_clock import ClusterClock
from anabranch.clock.loop import ClockLoop
from anabranch.cluster.in_process import Cluster
from anabranch.control.actions import ActionRefused, Actions, UnknownNode
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.events import Events
from anabranch.control.tour import guide as module
from anabranch.control.tour.guide import STORIES, Guide, Story
from anabranch.control.tour.scene import Scene, out_of_order
from anabranch.control.tour.step import Step, StoryFailed


@asynccontextmanager
async def guided(brokers: int = 3) -> AsyncIterator[tuple[ControlledCluster, Guide]]:
    clock = ClusterClock.new()
    assert clock is not None
    cluster = Cluster(brokers, seed=3)
    async with clock.running(cluster):
        events = Events()
        cluster.on_node(events.watch)
        guide = Guide()
        yield ControlledCluster(cluster, Actions(cluster, events), events, None, clock), guide
        await guide.end()


async def steps_of(on: ControlledCluster, guide: Guide, story: str) -> list[dict[str, Any]]:
    found, told = [], await guide.begin(on, story)
    while not told["over"]:
        found.append(told)
        told = await guide.next_step()
    assert "broken" not in told, told
    return found


def run(work: Any) -> None:
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(work)


def test_every_claim_of_each_tour_holds() -> None:
    async def tell_all() -> None:
        async with guided() as (on, guide):
            for story in STORIES:
                steps = await steps_of(on, guide, story.name)
                assert len(steps) == story.steps, story.name
                claims = [claim for step in steps for claim in step["claims"]]
                assert len(claims) > 0
                assert [claim["text"] for claim in claims if not claim["holds"]] == [], story.name
                assert all(step["look"] and step["text"] for step in steps)
                assert sorted(on.cluster.nodes) == [1, 2, 3]
                assert not len(on.faults)
                assert not any(map(on.cluster.is_frozen, on.cluster.node_ids))

    run(tell_all())


def test_abandoned_tour_is_cleaned_up() -> None:
    async def leave() -> None:
        async with guided() as (on, guide):
            await guide.begin(on, "lost-record")
            told = await guide.next_step()
            assert told["number"] == 2
            assert guide.row == told
            assert len(on.faults) == 1
            await guide.begin(on, "zombie")
            assert not len(on.faults)
            await guide.next_step()
            assert any(map(on.cluster.is_frozen, on.cluster.node_ids))
            await guide.end()
            assert guide.row is None
            assert not any(map(on.cluster.is_frozen, on.cluster.node_ids))
            with pytest.raises(ActionRefused, match="no story is running; start one"):
                await guide.next_step()
            with pytest.raises(UnknownNode, match="there is no story other; there are leader"):
                await guide.begin(on, "other")
            assert on.clock is not None
            on.clock.run_at(0)
            with pytest.raises(ActionRefused, match="is stopped"):
                await guide.begin(on, "leader")

    run(leave())


def test_failed_tour_names_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sad(scene: Scene) -> AsyncGenerator[Step, None]:
        scene.claim("it holds", False)
        yield scene.step("One", "It begins.", "cluster")
        raise StoryFailed("waited in vain")

    monkeypatch.setattr(module, "STORIES", (Story("sad", "Sad", "It breaks.", 2, sad),))

    async def tell() -> None:
        async with guided(1) as (on, guide):
            first = await guide.begin(on, "sad")
            assert first["claims"] == [{"text": "it holds", "holds": False}]
            told = await guide.next_step()
            assert (told["over"], told["broken"]) == (True, "waited in vain")

    run(tell())


def test_tour_is_ended_within_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = asyncio.Event()

    async def endless(scene: Scene) -> AsyncGenerator[Step, None]:
        waits.set()
        await scene.until(lambda: False, "nothing")
        yield scene.step("One", "It begins.", "cluster")

    monkeypatch.setattr(module, "STORIES", (Story("endless", "Endless", "It waits.", 1, endless),))

    async def leave() -> None:
        async with guided(1) as (on, guide):
            beginning = asyncio.create_task(guide.begin(on, "endless"))
            await waits.wait()
            await guide.end()
            with pytest.raises(ActionRefused, match="the story has ended"):
                await beginning

    run(leave())


def test_order_is_checked_per_key() -> None:
    records = [(b"a", b"1"), (b"b", b"5"), (b"a", b"3"), (b"a", b"2"), (b"b", b"6")]
    assert out_of_order(records) == 1
    assert out_of_order(sorted(records, key=lambda one: one[1])) == 0
