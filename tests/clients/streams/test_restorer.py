"""An instance runs, or ends with a reason, whatever happened to its changelogs.

Method: a real cluster, changelogs that are cut off, deleted or made again while no instance runs; the counts that come
out follow from what the changelogs have left.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from anabranch import NewTopic, Producer, TopicPartition
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams import committer
from anabranch.clients.streams.changelog import CONFIGS
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.config import AT_LEAST_ONCE, GUARANTEES, RESET_NONE
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.task_state import State
from anabranch.protocol import linear_hashing
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import murmur2
from tests.clients.streams.world import PARTITIONS, World, counts, streams_world, until

CHANGELOG = "app-counts-changelog"
KEYS = 20
"""Few enough that `feed` sends each of them."""


async def count_records(world: World, *names: str) -> None:
    """Have instances count records, one after the other, each for a while."""
    for name in names:
        await world.feed(200, keys=KEYS)
        async with world.instance(counts(), name) as one:
            await world.counted(one)
            await until(lambda one=one: idle(one), "all is committed")  # type: ignore[misc]


def idle(one: Streams) -> bool:
    return not any(task.state_manager.changed for task in one.tasks.values())


def running(one: Streams) -> int:
    return sum(task.state is State.RUNNING for task in one.tasks.values())


def works(one: Streams) -> bool:
    """Whether the instance has not ended by itself; raises why it has."""
    assert one._work is not None
    if one._work.done():
        one._work.result()
    return not one._work.done()


def read(one: Streams) -> int:
    return sum(one._consumer.position(TopicPartition("in", partition)) for partition in range(PARTITIONS))


async def empty(world: World, *partitions: int) -> None:
    """Have retention delete all records of some partitions of the changelog."""
    await world.admin.alter_configs(CHANGELOG, changes={"cleanup.policy": "compact,delete"})
    await world.admin.delete_records({TopicPartition(CHANGELOG, one): -1 for one in partitions})


async def make_again(world: World, *, partitions: int, records: int = 0) -> None:
    """Delete the changelog, and make a topic of its name, with so many records in each partition."""
    await world.admin.delete_topics([CHANGELOG])
    new = NewTopic(name=CHANGELOG, partitions=partitions, replication_factor=1, configs=CONFIGS)
    while True:
        try:
            await world.admin.create_topics([new])
        except KafkaError as error:
            assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS, "it is being deleted"
        else:
            break
    await world.admin.wait_for_topic(CHANGELOG)
    async with Producer(world.cluster.bootstrap_servers) as producer:
        for partition in range(partitions):
            for number in range(records):
                await producer.send(CHANGELOG, b"1", b"other-%d" % number, partition=partition)


async def abort_records(world: World) -> None:
    """Have each partition of the changelog end with an aborted transaction."""
    async with Producer(world.cluster.bootstrap_servers, transactional_id="aborting") as producer:
        await producer.begin_transaction()
        for partition in range(PARTITIONS):
            await producer.send_and_wait(CHANGELOG, b"1000", b"key-1", partition=partition)
        await producer.abort_transaction()


async def count_anew(world: World, name: str) -> Streams:
    """Have an instance count what is sent from now on, and nothing that was sent before."""
    world.expected.clear()
    await world.feed(400, keys=KEYS)
    async with world.instance(counts(), name) as one:
        await world.counted(one)
    return one


@pytest.mark.parametrize("name", ["behind", "elsewhere"])
async def test_instance_runs_with_changelogs_emptied_behind_aborted_transactions(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with streams_world(tmp_path) as world:
        await count_records(world, "behind", "one")
        await abort_records(world)
        await empty(world, *range(PARTITIONS))
        with caplog.at_level(logging.WARNING):
            await count_anew(world, name)
        assert caplog.text.count("were deleted from the changelog; store counts begins") == PARTITIONS
        await count_records(world, name, "one")


async def test_instance_with_complete_state_continues_where_retention_emptied_changelogs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was killed after its last commit, and never reads that marker."""
    async with streams_world(tmp_path) as world:
        await world.feed(200, keys=KEYS)
        async with world.instance(counts(), "one") as one:
            await world.counted(one)
            await until(lambda: idle(one), "all is committed")
            shutil.copytree(tmp_path / "one", tmp_path / "killed")
        await empty(world, *range(PARTITIONS))
        with caplog.at_level(logging.WARNING):
            await count_records(world, "killed")
        assert "store counts begins" not in caplog.text


async def test_aborted_transactions_at_changelog_end_are_skipped(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await count_records(world, "one")
        await abort_records(world)
        await count_records(world, "elsewhere", "one")


async def test_recreated_changelog_ends_instance_or_resets_its_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The new changelog is longer, so only its topic id differs."""
    async with streams_world(tmp_path) as world:
        await count_records(world, "one")
        await make_again(world, partitions=PARTITIONS, records=300)
        async with world.instance(counts(), "one", changelog_auto_offset_reset=RESET_NONE) as one:
            with pytest.raises(StreamsError, match="deleted and created again"):
                await one.wait_failed()
        with caplog.at_level(logging.WARNING):
            await count_anew(world, "one")
        assert caplog.text.count("deleted and created again; store counts begins anew") == PARTITIONS


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("records", "known"), [(0, False), (300, False), (300, True)])
async def test_running_instance_has_state_of_recreated_changelog(
    records: int, known: bool, guarantee: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The leaders of the new changelog refuse records for the old one, if the producer does not know it already."""
    async with streams_world(tmp_path) as world:
        await world.feed(200, keys=KEYS)
        async with world.instance(counts(), processing_guarantee=guarantee) as one:
            await world.counted(one)
            await until(lambda: idle(one), "all is committed")
            await make_again(world, partitions=PARTITIONS, records=records)
            if known:
                await one._committer._producer._network.refresh()  # type: ignore[union-attr]
            while works(one) and caplog.text.count("store counts begins anew") < PARTITIONS:
                await world.feed(10, keys=KEYS // 2)
                await asyncio.sleep(0.02)
            await until(
                lambda: works(one) and read(one) == world.expected.total() and idle(one) and running(one) == PARTITIONS,
                "all is counted",
            )
            held = {task.id: dict(task.stores["counts"].items()) for task in one.tasks.values()}
        async with world.instance(counts(), "elsewhere", processing_guarantee=guarantee) as other:
            await until(lambda: running(other) == PARTITIONS, "all is restored")
            assert {task.id: dict(task.stores["counts"].items()) for task in other.tasks.values()} == held


async def test_deleted_changelog_is_named_and_recreated_when_its_stores_are_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with streams_world(tmp_path) as world:
        await world.feed(200, keys=KEYS)
        async with world.instance(counts()) as one:
            await world.counted(one)
            await until(lambda: idle(one), "all is committed")
            await world.admin.delete_topics([CHANGELOG])
            for task in one.tasks.values():
                task.state_manager.doubt("counts")
            await until(lambda: caplog.text.count("store counts begins anew") == PARTITIONS, "it is made again")
            await until(lambda: running(one) == PARTITIONS, "all is restored")
            assert (
                f"waiting for changelogs: the cluster answers UNKNOWN_TOPIC_OR_PARTITION for {CHANGELOG}\n"
                in caplog.text
            )
            world.expected.clear()
            await world.feed(400, keys=KEYS)
            await world.counted(one)


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_instance_whose_changelog_is_deleted_during_write_names_it_and_remedy(
    guarantee: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "SLOW_S", 0.1)
    async with streams_world(tmp_path, auto_create_topics_enable="false") as world:
        await fail_without_changelog(world, guarantee, f"{CHANGELOG} was deleted .* start the instance again")
        async with world.instance(counts(), processing_guarantee=guarantee) as again:
            await world.counted(again)


async def test_instance_with_auto_created_changelog_advises_to_delete_it(tmp_path: Path) -> None:
    async with streams_world(tmp_path, auto_create_topics_enable="true") as world:
        await fail_without_changelog(world, AT_LEAST_ONCE, f"other partitions .*{CHANGELOG}.* delete it")


async def fail_without_changelog(world: World, guarantee: str, reason: str) -> None:
    """Delete the changelog of a running instance, which then ends for this reason, and can be stopped."""
    await world.feed(200, keys=KEYS)
    one = world.instance(counts(), processing_guarantee=guarantee)
    await one.start()
    try:
        await world.counted(one)
        await until(lambda: idle(one), "all is committed")
        await world.admin.delete_topics([CHANGELOG])
        world.expected.clear()
        await world.feed(200, keys=KEYS)
        async with asyncio.timeout(20):
            with pytest.raises(StreamsError, match=reason):
                await one.wait_failed()
    finally:
        async with asyncio.timeout(20):
            await one.stop()


@pytest.mark.parametrize("partitions", [0, 2, 12])
async def test_resized_state_is_reset_when_its_changelog_was_recreated(partitions: int, tmp_path: Path) -> None:
    """With fewer partitions, with more, and deleted only: then the instance creates it."""
    async with streams_world(tmp_path) as world:
        await world.feed(200, keys=KEYS)
        async with world.instance(counts()) as one:
            for width in (8, 3):
                await world.admin.create_partitions("in", width, allow_shrink=True)
                await world.feed(200, keys=KEYS)
                await world.counted(one)
            await until(lambda: idle(one), "all is committed")
        await (make_again(world, partitions=partitions) if partitions else world.admin.delete_topics([CHANGELOG]))
        await count_anew(world, "one")
        await count_records(world, "one", "elsewhere")


async def count_records_and_resize(world: World) -> None:
    """Have an instance count records before and after a resize, so that partitions 4 to 7 get state of 0 to 3."""
    await world.feed(200, keys=KEYS)
    async with world.instance(counts()) as one:
        await world.counted(one)
        await world.admin.create_partitions("in", 8)
        await world.feed(200, keys=KEYS)
        await world.counted(one)
        await until(lambda: idle(one), "all is committed")


async def test_task_whose_arrived_state_was_deleted_by_retention_runs_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The giving partitions have recorded it; no more state arrives."""
    async with streams_world(tmp_path) as world:
        await count_records_and_resize(world)
        await empty(world, 4, 5, 6, 7)
        for key in world.expected:
            if linear_hashing.address(murmur2(key), 4, 8) >= 4:
                world.expected[key] = 0
        with caplog.at_level(logging.WARNING):
            await count_records(world, "elsewhere", "elsewhere")
        assert "0_4: the state that came from partition 0 at generation 1 was deleted" in caplog.text


async def test_marks_deleted_by_retention_are_written_again_once_task_has_run(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await count_records_and_resize(world)
        await empty(world, *range(8))
        await count_records(world, "one")
        world.expected.clear()
        await world.feed(400, keys=KEYS)
        async with world.instance(counts(), "elsewhere") as other:
            await until(lambda: other.processed >= 400, "everything runs")
            assert other.moves.deliveries == 0, "it did not see what was handed over"


async def test_damaged_changelog_delays_no_other_one_and_does_not_fill_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    intact, failed = ChangelogReader.take, 0

    def take(reader: ChangelogReader, partition: TopicPartition, limit: int) -> tuple[list[ConsumerRecord], int]:
        nonlocal failed
        if partition == TopicPartition(CHANGELOG, 0):
            failed += 1
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: the batch at offset 0 is damaged")
        return intact(reader, partition, limit)

    async with streams_world(tmp_path) as world:
        await count_records(world, "one")
        monkeypatch.setattr(ChangelogReader, "take", take)
        async with world.instance(counts(), "elsewhere") as one:
            await until(lambda: running(one) == PARTITIONS - 1, "the others run")
            await until(lambda: failed > 30, "it is tried again")
            assert caplog.text.count("the batch at offset 0 is damaged") == 1
            monkeypatch.setattr(ChangelogReader, "take", intact)
            await until(lambda: running(one) == PARTITIONS, "a replica without the damage was found")
