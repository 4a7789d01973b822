"""A disk error postpones maintenance of one log, a bug ends it, and long work yields."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from anabranch.broker.config.broker_settings import WEEK_MS
from anabranch.broker.replication import replica_maintenance
from anabranch.broker.replication.partition import Partition
from anabranch.broker.replication.replica_maintenance import in_steps, periodically
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.memory_files import MemoryFiles
from tests.broker.replication.replica_cluster import NOW_MS, batch, replica_cluster
from tests.broker.storage.faulty_files import FaultyFiles


def turns(*outcomes: Exception | None) -> tuple[Callable[[], bool], list[int]]:
    """Work that ends so, turn by turn; a ValueError follows, which ends it."""
    done: list[int] = []

    def work() -> bool:
        done.append(len(done))
        outcome = outcomes[len(done) - 1] if len(done) <= len(outcomes) else ValueError("a bug")
        if outcome is not None:
            raise outcome
        return False

    return work, done


def repeat_until_done(work: Callable[[], bool]) -> Iterator[None]:
    while work():
        yield


@pytest.mark.parametrize("outcomes", [(None, None), (OSError("disk"), None), (None, OSError("disk"), OSError("disk"))])
async def test_periodic_task_retries_expected_errors_and_raises_bugs(
    outcomes: tuple[Exception | None, ...], caplog: pytest.LogCaptureFixture
) -> None:
    for repeat in (
        lambda work: periodically(0, lambda: repeat_until_done(work)),
        lambda work: in_steps(lambda: 0.0, work),
    ):
        caplog.clear()
        work, done = turns(*outcomes)
        with pytest.raises(ValueError, match="a bug"):
            await asyncio.wait_for(repeat(work), 60)
        assert len(done) == len(outcomes) + 1
        assert sum("failed, retrying at the next run" in line for line in caplog.messages) == sum(map(bool, outcomes))


async def test_other_tasks_run_between_two_steps() -> None:
    others = steps = 0

    def step() -> bool:
        nonlocal steps
        assert others >= steps, "somebody was let through after each step"
        steps += 1
        if steps == 5:
            raise ValueError("enough")
        return True

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    busy = asyncio.create_task(other())
    try:
        for repeat in (in_steps(lambda: 0.0, step), periodically(0, lambda: repeat_until_done(step))):
            others = steps = 0
            with pytest.raises(ValueError, match="enough"):
                await asyncio.wait_for(repeat, 60)
    finally:
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)


async def test_failing_retention_of_a_log_does_not_stop_retention_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The disk is full; the first log needs space to delete its only segment, the second one has seven to delete."""
    async with replica_cluster(0, log_segment_bytes=1000) as cluster:
        files = FaultyFiles(MemoryFiles())
        broker = await cluster.start(1, files)  # type: ignore[arg-type]
        for topic in ("idle", "busy"):
            await cluster.lead(1, replicas=(1,), topic=topic)
        idle, busy = cluster.partition(1, "idle"), cluster.partition(1, "busy")
        old = batch("x" * 100, timestamp_ms=NOW_MS - 2 * WEEK_MS)
        replicas = broker.replicas
        replicas.append_local(idle, old, acks=1, generation=None)
        while len(busy.log.segments) < 8:
            replicas.append_local(busy, old, acks=1, generation=None)
        files.full = True
        replicas.housekeeping.retain()
        assert (len(idle.log.segments), idle.log.log_start_offset) == (1, 0)
        assert (len(busy.log.segments), busy.log.log_start_offset) == (1, busy.log.segments.first_offset)
        waiting = [line for line in caplog.messages if "retention failed" in line]
        assert len(waiting) == 2
        assert "idle-0" in waiting[0]
        assert "no space" in waiting[0]
        files.full = False
        replicas.housekeeping.retain()
        assert (idle.log.size_bytes, busy.log.size_bytes) == (0, 0)


async def test_unchanged_partitions_are_not_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica_cluster(1) as cluster:
        for topic in ("busy", "idle"):
            await cluster.lead(1, replicas=(1,), topic=topic)
        replicas = cluster[1].replicas
        checkpointed: list[list[tuple[str, int, int]]] = []
        monkeypatch.setattr(replicas.logs, "checkpoint", lambda rows: checkpointed.append(list(rows)))
        replicas.housekeeping.checkpoint()
        await cluster.produce(1, batch("a"), topic="busy", acks=1)
        replicas.housekeeping.flush_step()  # it sees the change before the checkpoint does
        replicas.housekeeping.checkpoint()
        replicas.housekeeping.checkpoint()
        assert checkpointed[1:] == [[("busy", 0, 1)], []]
        assert checkpointed[0][-1] == ("idle", 0, 0), "what has come to live here is new"


async def test_checkpoint_of_many_partitions_runs_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_maintenance, "STEP", 2)
    async with replica_cluster(1) as cluster:
        replicas = cluster[1].replicas
        replicas.housekeeping.checkpoint()
        for topic in "abcde":
            await cluster.lead(1, replicas=(1,), topic=topic)
            await cluster.produce(1, batch("x"), topic=topic, acks=1)
        saved = replicas.logs.home(("a", 0)).high_watermarks.offsets
        steps = replicas.housekeeping.checkpoint_steps()
        counts = []
        for _ in steps:
            counts.append(len(saved))
            if len(saved) == 2:
                replicas.stop_replica("c", 0, -1, delete=True)
        assert counts[:5] == [0, 0, 2, 3, 4], "each step takes two changes, or saves two high watermarks"
        assert saved == {(topic, 0): 1 for topic in "abde"}, "without the deleted one"


async def test_failed_flush_resigns_a_leader_and_ignores_a_removed_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        replicas, partition = cluster[1].replicas, cluster.partition(1)
        resigned: list[Partition] = []
        monkeypatch.setattr(Partition, "propose_resign", lambda self, _: resigned.append(self))
        replicas.housekeeping.flush_step()
        assert resigned == []
        partition.log.durability.failure = "a flush failed"
        partition.log.changed()
        for _ in range(2):
            replicas.housekeeping.flush_step()
        assert resigned == [partition] * 2, "until the controller has heard it"
        replicas.stop_replica("t", 0, -1, delete=False)
        replicas.housekeeping.flush_step()
        assert resigned == [partition] * 2


async def test_retention_of_many_partitions_runs_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_maintenance, "STEP", 2)
    async with replica_cluster(1) as cluster:
        for topic in "abcde":
            await cluster.lead(1, replicas=(1,), topic=topic)
        kept: list[str] = []
        monkeypatch.setattr(PartitionLog, "apply_retention", lambda log, _, **__: kept.append(log.directory))
        replicas = cluster[1].replicas
        assert [replicas.housekeeping.retain(), len(kept)] == [True, 2]
        left = next(topic for topic in "abcde" if f"{topic}-0" not in kept)
        replicas.stop_replica(left, 0, -1, delete=True)
        while replicas.housekeeping.retain():
            pass
        assert sorted(kept) == sorted(f"{topic}-0" for topic in "abcde" if topic != left)
        assert replicas.housekeeping.retain(), "from the beginning"
