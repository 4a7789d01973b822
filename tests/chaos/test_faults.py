"""Overlapping faults on a real ensemble of three, without nodes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from anabranch.chaos.cluster import ChaosCluster
from anabranch.chaos.faults import freeze_zookeeper, kill_zookeeper
from anabranch.chaos.scene import Scene

pytestmark = [pytest.mark.zookeeper]

TURN_S = 0.01


class BriefScene(Scene):
    """Every pause is short, so that a server is soon on its way back."""

    def pause(self) -> float:
        return 0.2


async def no_resize(*_: object) -> None:
    """No resize is asked for here."""


async def test_one_zookeeper_server_is_down_at_a_time(tmp_path: Path) -> None:
    """The ensemble always has a quorum: while a killed server is away, neither fault finds a target."""
    cluster = ChaosCluster(tmp_path)
    scene = BriefScene(cluster, random.Random(1), no_resize, (), set())
    async with cluster.ensemble:
        first = asyncio.ensure_future(kill_zookeeper(scene))
        tries = 0
        while not first.done():
            await asyncio.sleep(TURN_S)
            tries += 1
            if not first.done():
                others = (await freeze_zookeeper(scene), await kill_zookeeper(scene))
                assert others == (None, None), "a server was taken while another was on its way back"
        assert tries > 1
        assert await first is not None
        assert await freeze_zookeeper(scene) is not None
        assert await kill_zookeeper(scene) is not None


async def test_no_zookeeper_server_is_stopped_while_another_is_dead(tmp_path: Path) -> None:
    cluster = ChaosCluster(tmp_path)
    scene = BriefScene(cluster, random.Random(1), no_resize, (), set())
    async with cluster.ensemble as ensemble:
        await ensemble.kill(3)
        assert await freeze_zookeeper(scene) is None
        assert await kill_zookeeper(scene) is None
