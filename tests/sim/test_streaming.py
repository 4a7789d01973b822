"""A Streams application through kills, crashes and cuts: each key is counted 1, 2, 3 without gaps.

The long forms are `python -m tests.sim.streaming`, with resizes of the input, `--removals`, `--joins`,
`--repeats`, `--timers`, `--windows`, `--stream-joins`, `--foreign-joins` and `--global-tables`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from anabranch.clients.streams import foreign_key_join
from anabranch.clients.streams.global_state_manager import GlobalStateManager
from anabranch.clients.streams.subscription_wrapper import HASH_BYTES
from tests.sim.resizing import removals_soon
from tests.sim.streaming import Instance, play
from tests.sim.streaming_removals import Removals, removed

SCHEDULES = 2


def test_schedules_have_no_violation() -> None:
    fired: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        _, violations, happened = play(seed, resizes=False)
        assert not violations, f"python -m tests.sim.streaming {seed} --no-resizes"
        fired += happened
    assert fired["records"] > 200
    assert fired["client killed"] and fired["process killed"]


@pytest.mark.costly
def test_story_of_a_seed_does_not_depend_on_string_hashes() -> None:
    """A consumer of global tables has every partition of their topics, in a set."""
    stories = {
        subprocess.run(
            [sys.executable, "-m", "tests.sim.streaming", "--global-tables", "3"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(stories) == 1


class OutlivedPartitions(Removals):
    """Two partitions get state but no records, and are removed while no instance can hand it on."""

    def __init__(self, directory: Path, heir: int) -> None:
        super().__init__(0, directory)
        self.heir = heir
        self.operator.counts = [1]

    async def _life(self) -> None:
        cluster, before, after = self.cluster, self.instances[0], self.instances[self.heir]
        await cluster.start()
        await self.operator.create()
        await self.output.create()
        for application in (self.feeder, before):
            application.start()
        await cluster.until(lambda: len(self.feeder.sent) == len(self.feeder.keys), 60, "every key is known")
        self.feeder.resting = True
        await self._resize(3)
        await cluster.until(lambda: deliveries(before) == 2, 60, "both children have their state")
        before.kill()
        await self._resize(1)
        await removed(cluster, 1)
        after.start()
        self.feeder.resting = False
        many = 2 * sum(self.feeder.sent.values())
        await cluster.until(lambda: sum(self.feeder.sent.values()) >= many, 60, "all keys come again")
        await cluster.until(lambda: deliveries(after) == 2, 60, "the state of both is passed on")
        await self._heal()
        await self._rest()


def deliveries(instance: Instance) -> int:
    streams = instance.streams
    return streams.moves.deliveries if streams is not None and hasattr(streams, "_committer") else 0


@pytest.mark.parametrize("heir", [0, 1], ids=["the same instance", "another instance"])
def test_state_is_handed_over_after_its_partition_is_removed(heir: int, tmp_path: Path) -> None:
    with removals_soon():
        assert not OutlivedPartitions(tmp_path, heir).run()


def test_schedule_with_removals_has_no_violation() -> None:
    _, violations, happened = play(0, kind="removals")
    assert not violations, "python -m tests.sim.streaming --removals 0"
    assert happened["removals"]


@pytest.mark.costly
def test_joined_topics_with_resizes_converge() -> None:
    _, violations, happened = play(9, kind="joins")  # one that finds it when nothing waits, or for the fastest topic
    assert not violations, "python -m tests.sim.streaming --joins 9"
    assert happened["keys moved"]


def test_at_least_once_loses_nothing_through_crashes_and_resizes() -> None:
    _, violations, happened = play(1, kind="repeats")  # one that finds it when nothing waits for state
    assert not violations, "python -m tests.sim.streaming --repeats 1"
    assert happened["keys moved"]


def test_timers_fire_once_each_through_crashes_and_resizes() -> None:
    _, violations, happened = play(2, kind="timers")  # finds timers that are not indexed, fire twice, or do not move
    assert not violations, "python -m tests.sim.streaming --timers 2"
    assert happened["silences"] and happened["keys moved"]


@pytest.mark.parametrize(
    "seed",
    [pytest.param(2, id="short grace period", marks=pytest.mark.costly), pytest.param(4, id="long grace period")],
)
def test_windows_close_once_with_all_their_records_through_crashes_and_resizes(seed: int) -> None:
    """These find stream time that is forgotten or does not move, windows that are not indexed, or stay behind, and
    closed sliding windows that are not marked; the first finds late records that are lost."""
    _, violations, happened = play(seed, kind="windows")
    assert not violations, f"python -m tests.sim.streaming --windows {seed}"
    assert happened["windows closed"] > 100 and happened["keys moved"]


@pytest.mark.parametrize(
    "seed", [pytest.param(5, id="short windows", marks=pytest.mark.costly), pytest.param(11, id="long windows")]
)
def test_joined_streams_have_each_pair_once_through_crashes_and_resizes(seed: int) -> None:
    """The second finds records that are not kept, indexed or removed, and stream time that does not move; the first
    finds forgotten stream time, and records that move by another hash than their key's."""
    _, violations, happened = play(seed, kind="stream-joins")
    assert not violations, f"python -m tests.sim.streaming --stream-joins {seed}"
    assert happened["pairs"] and happened["records without a pair"] and happened["keys moved"]


@pytest.mark.costly
def test_records_meet_newest_rows_of_a_global_table_through_crashes_and_resizes() -> None:
    """It finds rows that a resize brings out of order, and positions that are kept without their rows."""
    _, violations, happened = play(6, kind="global-tables")
    assert not violations, "python -m tests.sim.streaming --global-tables 6"
    assert happened["joined"] and happened["client killed"] and happened["resizes"]


async def _not_at_all(manager: GlobalStateManager) -> None:
    """Fill no table before the tasks run."""


@pytest.mark.costly
def test_tasks_that_run_before_global_table_is_full_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GlobalStateManager, "start", _not_at_all)
    _, violations, _ = play(6, kind="global-tables")
    assert any("began with" in one for one in violations)


@pytest.mark.costly
def test_joined_tables_have_each_change_once_through_crashes_and_resizes() -> None:
    """It finds rows that lose their timestamps when they move or are restored, and sides that are not looked up."""
    _, violations, happened = play(1, kind="table-joins")
    assert not violations, "python -m tests.sim.streaming --table-joins 1"
    assert happened["keys moved"]


@pytest.mark.costly
def test_joins_by_foreign_keys_end_with_the_last_rows_through_crashes_and_resizes() -> None:
    """It finds rows that a resize brings out of order."""
    _, violations, happened = play(1, kind="foreign-joins")
    assert not violations, "python -m tests.sim.streaming --foreign-joins 1"
    assert happened["results"] > 50 and happened["resizes"] and happened["resizes of the table"]


@pytest.mark.costly
def test_responses_for_outdated_left_rows_that_are_used_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_key_join, "hash_of", lambda value: None if value is None else bytes(HASH_BYTES))
    _, violations, _ = play(1, kind="foreign-joins")
    assert any("has never had version" in one for one in violations)
