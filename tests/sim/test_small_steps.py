"""Schedules in small steps: they have no violation, and short requests do yield in them."""

from __future__ import annotations

from concurrent.futures import Executor

from anabranch.broker.handlers.offset_commit import offset_commit
from tests.broker.coordinators.world import commit_request, group_world
from tests.broker.yields import context, yields_of
from tests.sim.command import run_many
from tests.sim.small_steps import STEPS, small_steps

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
