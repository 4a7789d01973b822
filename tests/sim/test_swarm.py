"""Schedules of the swarm scenario, what they cover, and the fault that they found."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import Executor

from tests.sim.clients import TOPIC
from tests.sim.cluster import SimCluster
from tests.sim.command import BATCH, batches_until, run_many
from tests.sim.coverage import Coverage, Table
from tests.sim.loop import Process
from tests.sim.phases import phase_of
from tests.sim.swarm import HARMLESS, SWARM_FAULTS, SwarmSchedule, swarm

SEEDS = (3, 9, 393, 2260)
"""`make soak` runs as many as there is time for."""


def test_schedules_of_all_protocols_and_faults_have_no_violation(workers: Executor) -> None:
    table = Table()
    for result in run_many(SEEDS, workers, "swarm"):
        assert not result.violations, f"repeat with: make sim SCENARIO=swarm SEED={result.seed}"
        table.add(result.phases, result.meetings, result.protocols)
    protocols = {protocol for _, protocol in table.protocols}
    assert {"eager", "cooperative", "consumer", "share"} <= protocols
    assert any("draining" in line for line in table.lines())
    assert len({phase for _, phase in table.phases}) >= 3


def test_each_seed_leaves_faults_out_and_prefers_some() -> None:
    drawn = [swarm(seed, "faults", SWARM_FAULTS) for seed in range(40)]
    sizes = [len(one) for one in drawn]
    assert min(sizes) < len(SWARM_FAULTS) / 4 and max(sizes) > len(SWARM_FAULTS) * 3 / 4
    unequal = [max(one.values()) / sum(one.values()) for one in drawn if len(one) > 3]
    assert max(unequal) > 3 * min(unequal)


def test_new_kind_changes_no_weight_of_another() -> None:
    for seed in range(20):
        weights = swarm(seed, "faults", ["a new one", *SWARM_FAULTS])
        weights.pop("a new one", None)
        assert weights == swarm(seed, "faults", SWARM_FAULTS)


def test_coverage_counts_actions_with_effect_in_their_phase_and_beside_others() -> None:
    coverage = Coverage(SimCluster("coverage", spares=0))
    with coverage.during("kill") as kill:
        with coverage.during("resize") as resize:
            resize.happened = True
        kill.happened = True
    with coverage.during("freeze"):
        pass
    assert coverage.phases == Counter({("kill", "at rest"): 1, ("resize", "at rest"): 1})
    assert coverage.meetings == Counter({("kill", "resize"): 2})


def test_soak_continues_with_the_next_seeds_until_its_deadline() -> None:
    batches = batches_until(time.monotonic() + 3600, 7)
    assert [next(batches), next(batches)] == [range(7, 7 + BATCH), range(7 + BATCH, 7 + 2 * BATCH)]
    assert not list(batches_until(time.monotonic(), 7))


def test_cluster_without_the_topic_is_at_rest() -> None:
    cluster = SimCluster("empty", spares=0)
    assert TOPIC not in dict(cluster.topics())
    assert phase_of(cluster) == "at rest"


def test_wait_ends_when_its_phase_begins_or_its_time_is_over() -> None:
    schedule = SwarmSchedule(5)
    cluster, met = schedule.cluster, dict[str, bool]()

    async def wait(phase: str, within_s: float) -> None:
        began = await schedule.phases.begins(phase, within_s=within_s)
        met[f"{phase} in {within_s:g} s"] = began and phase_of(cluster) == phase

    async def story() -> None:
        await cluster.start()
        await schedule.resizer.create()
        waits = [asyncio.ensure_future(wait(*one)) for one in (("planned", 9), ("cutting", 9), ("planned", 0.001))]
        count = schedule.resizer.counts[0] + 1
        await cluster.loop.spawn(Process("operator"), schedule.resizer._resize(count))
        await asyncio.gather(*waits)

    cluster.loop.run(story())
    assert met == {"planned in 9 s": True, "cutting in 9 s": True, "planned in 0.001 s": False}


def test_power_fails_among_other_faults_only_where_each_append_is_flushed() -> None:
    schedules = [SwarmSchedule(seed) for seed in range(24)]
    assert {one.shape.flushes for one in schedules} == {False, True}
    for one in schedules:
        assert one.stands_alone("power failure") is not one.shape.flushes
        assert not one.stands_alone("kill")
    assert set(SWARM_FAULTS) > HARMLESS


def test_table_names_pairs_that_never_met() -> None:
    table = Table()
    table.add(Counter({("kill", "planned"): 2, ("freeze", "cutting"): 1}), Counter({("kill", "kill"): 1}), ["eager"])
    assert ("kill", "cutting") in table.holes() and ("kill", "planned") not in table.holes()
    lines = list(table.lines())
    assert "1 schedules; 1 of 3 pairs of actions met" in lines
    assert "never met: freeze x kill" in lines
    assert "| kill | 2 |" in lines
