"""Schedules in small steps: they have no violation, and short requests do yield in them."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Executor

from anabranch.broker.handlers.offset_commit import offset_commit
from tests.broker.coordinators.world import commit_request, group_world
from tests.broker.yields import context, yields_of
from tests.sim.command import run_many
from tests.sim.small_steps import LONGEST_YIELD_S, STEPS, small_steps

SEEDS = (88_000,)


def test_schedules_in_small_steps_have_no_violation(workers: Executor) -> None:
    for result in run_many(SEEDS, workers, "small-steps"):
        assert not result.violations, f"repeat with: make sim SCENARIO=small-steps SEED={result.seed}"


async def test_short_commit_yields_in_small_steps_only() -> None:
    async with group_world() as world:
        ctx, request = context(world[1].services, 9), commit_request({0: 1, 1: 1})
        with small_steps():
            assert [getattr(module, name) for module, name, _ in STEPS] == [size for _, _, size in STEPS]
            _, others = await yields_of(offset_commit(ctx, request))
        assert others >= 6, "values, records and rows"
        _, others = await yields_of(offset_commit(ctx, request))
        assert others == 0


class Longest(random.Random):
    """Lets each yield take as long as it may."""

    def random(self) -> float:
        return 1.0


async def test_time_passes_between_two_small_steps() -> None:
    now_s = asyncio.get_running_loop().time
    with small_steps(Longest()):
        start_s = now_s()
        await asyncio.sleep(0)
        assert now_s() - start_s >= LONGEST_YIELD_S
