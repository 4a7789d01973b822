"""A killed driver, and killed Python workers. The long form: `python -m tests.spark_jobs.kills --times 20`."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.spark_jobs import audit, violations
from anabranch.spark_jobs.audit import Target
from anabranch.spark_jobs.java import why_missing
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.service import STARTS_MAX, TOO_SLOW, AuditService
from anabranch.spark_jobs.session import TASK_FAILURES
from tests.spark_jobs import kills
from tests.spark_jobs.live import LiveCluster

HELD_AFTER = 3
"""Batches; the last of them is written, and Spark does not know yet that it is."""


class Doomed(NamedTuple):
    """An audit that is to be killed."""

    driver: kills.Driver
    target: Target
    expected: kills.Expected


@pytest.fixture(scope="session")
def doomed(live: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doomed]:
    """It starts a Spark of its own while the one that tests share starts, too: `conftest` lets it be the first."""
    if why_missing() is not None:
        pytest.skip(f"NO SPARK: {why_missing()}")
    expected = kills.write_down(live, seed=3)
    directory = tmp_path_factory.mktemp("doomed")
    target = Target(live.servers, kills.TOPIC, directory, Scope(kills.EXPECT), rows_per_trigger=300)
    driver = kills.Driver(target, hold=HELD_AFTER)
    yield Doomed(driver, target, expected)
    driver.kill(kills.DRIVER, random.Random())


@pytest.mark.costly
@pytest.mark.spark
def test_audit_gives_same_verdict_after_driver_and_worker_are_killed(
    doomed: Doomed, spark: SparkSession, tmp_path: Path
) -> None:
    """A driver process is killed; the shared Spark continues, and loses workers."""
    driver, target, expected = doomed
    rng = random.Random(3)
    undisturbed = AuditService(spark, target.servers, tmp_path, tell=lambda *_, **__: None)
    undisturbed.begin(kills.TOPIC, Scope(kills.EXPECT))
    undisturbed.finish(kills.TOPIC)
    assert kills.differences(undisturbed.target(kills.TOPIC, Scope(kills.EXPECT)), expected) == []

    kills.held(driver, target, HELD_AFTER).kill(kills.DRIVER, rng)
    before = kills.counted(target)
    done = [f"{violations.batch_name(batch)}.parquet" for batch in range(HELD_AFTER - 1)]
    assert any((target.violations / name).exists() for name in done), "something was found that is not found again"

    batches: list[int] = []
    killers: list[threading.Timer] = []

    def note(facts: dict[str, Any]) -> None:
        """After each of the first batches, a worker of the next one dies: one time less than a task may fail."""
        batches.append(facts["batch"])
        if len(batches) < TASK_FAILURES:
            killers.append(threading.Timer(0.3 * rng.random(), kills.kill_worker, (os.getpid(), rng)))
            killers[-1].start()

    try:
        read_to_the_end(spark, target, note)
    finally:
        for killer in killers:
            killer.cancel()
            killer.join()
    audit.finish(spark, target)
    assert batches[0] == HELD_AFTER - 1, "it goes on where the other was"
    assert len(batches) >= 2, "something is done after a worker was killed"
    assert kills.differences(target, expected) == []
    after = kills.counted(target)
    assert any(before[bucket] == after[bucket] for bucket in before), "of one bucket only the dead one has heard"


def read_to_the_end(spark: SparkSession, target: Target, note: Callable[[dict[str, Any]], None]) -> None:
    """Start again from the checkpoint where Spark loses its patience with a busy machine, as the service does."""
    for _ in range(STARTS_MAX):
        query = audit.start(spark, target, note)
        try:
            query.processAllAvailable()
        except PySparkException as error:
            if TOO_SLOW not in str(error):
                raise
        else:
            return
        finally:
            query.stop()
    pytest.fail(f"{STARTS_MAX} times in a row: {TOO_SLOW}")
