"""Global tables of instances on a cluster: filled before tasks run, followed, kept on disk, and read anew if they must.

Method: real instances in one process, as in `test_streams.py`; simulated ones are in `tests/sim`.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from anabranch import (
    JSON,
    ErrorCode,
    KafkaError,
    KeyQuery,
    NewTopic,
    Producer,
    RangeQuery,
    Streams,
    TopicPartition,
    Topology,
)
from anabranch.clients.streams import internal_topic_manager
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.task_disk import DATA_FILE
from tests.clients.streams.world import World, streams_world, until

TOPICS = ("in", "out", "planes")
PLANES = 60


def seats() -> Topology:
    """Records of any key, each with the row that its value names."""
    topology = Topology()
    planes = topology.global_table("planes", store="seats", value=JSON)
    flights = topology.stream("in")
    flights.join_global(planes, lambda key, plane: plane, lambda plane, row: row, left=True).to("out")
    return topology


async def fill(world: World, version: int, *, planes: int = PLANES) -> dict[bytes, int]:
    """A version of each row; what the table has then."""
    for number in range(planes):
        await world.producer.send("planes", json.dumps(version).encode(), b"plane-%d" % number)
    await world.producer.flush()
    return {b"plane-%d" % number: version for number in range(planes)}


def table(one: Streams) -> dict[bytes, int]:
    return {row.key: row.value for row in one.query("seats", RangeQuery()).rows}


async def follows(one: Streams, rows: dict[bytes, int]) -> None:
    await until(lambda: table(one) == rows, "the table is followed")


async def test_every_instance_has_the_whole_table_when_it_starts_and_follows_it(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        rows = await fill(world, 1)
        async with world.instance(seats()) as one, world.instance(seats(), "two") as two:
            assert table(one) == table(two) == rows
            for number in range(PLANES):
                await world.producer.send("in", b"plane-%d" % number, b"flight-%d" % number)
            await world.output("out", lambda sent: sent == {b"flight-%d" % n: 1 for n in range(PLANES)}, one, two)
            rows |= await fill(world, 2, planes=10)
            await world.producer.send("planes", None, b"plane-11")
            del rows[b"plane-11"]
            for each in (one, two):
                await follows(each, rows)
            state = two.query("seats", KeyQuery(b"plane-1")).partitions
            assert sorted(state) == [0, 1, 2, 3] and {one.lag for one in state.values()} <= {0, None}


async def test_restart_reads_only_what_is_new(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        rows = await fill(world, 1)
        async with world.instance(seats()) as one:
            assert one._global.restored == PLANES
        rows |= await fill(world, 2, planes=7)
        async with world.instance(seats()) as one:
            assert table(one) == rows
            assert one._global.restored == 7
            (store,) = one._global.stores.values()
            os.utime(store.disk.directory / DATA_FILE, (1000, 1000))  # the topic has been silent for a long time
        async with world.instance(seats()) as one:
            assert one._global.restored == 0
            (store,) = one._global.stores.values()
        os.utime(store.disk.directory / DATA_FILE, (1000, 1000))  # and now the instance was stopped for so long
        async with world.instance(seats()) as one:
            assert table(one) == rows
            assert one._global.restored == PLANES + 7


async def test_order_of_a_key_is_kept_through_resizes_while_instances_run_or_are_down(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        rows, version = await fill(world, 1), 1
        for count in (8, 3, 5):
            async with world.instance(seats()) as one:
                await world.admin.create_partitions("planes", count, allow_shrink=True)
                version += 1
                rows |= await fill(world, version)
                await follows(one, rows)
                version += 1
                rows |= await fill(world, version, planes=20)
            await world.admin.create_partitions("planes", count + 1)
            version += 1
            rows |= await fill(world, version, planes=40)
            async with world.instance(seats(), f"new-{count}") as new, world.instance(seats()) as one:
                assert table(new) == table(one) == rows


async def recreate(world: World) -> None:
    """Delete the topic of the table, and create it again."""
    await world.admin.delete_topics(["planes"])
    await create_again(world)


async def create_again(world: World) -> None:
    while True:
        try:
            await world.topics("planes")
            return
        except KafkaError as error:
            assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS, "hidden already, and not gone yet"
            await asyncio.sleep(0.01)


async def test_table_is_read_again_if_its_topic_is_recreated_while_it_is_followed(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        await fill(world, 1)
        async with world.instance(seats()) as one:
            await recreate(world)
            await follows(one, await fill(world, 2, planes=7))


async def test_table_is_read_again_if_its_topic_was_recreated_while_the_instance_was_down(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        await fill(world, 1)
        async with world.instance(seats()):
            pass
        await recreate(world)
        rows = await fill(world, 2, planes=7)
        async with world.instance(seats()) as one:
            assert table(one) == rows


async def test_table_is_read_again_if_records_were_deleted_before_it_read_them(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        await fill(world, 1)
        async with world.instance(seats()):
            pass
        await fill(world, 2, planes=30)
        ends = [TopicPartition("planes", number) for number in range(4)]
        await world.admin.delete_records(dict.fromkeys(ends, -1))
        rows = await fill(world, 3, planes=7)
        with pytest.raises(StreamsError, match="the global table seats does not belong to its topic: planes-"):
            await world.instance(seats(), changelog_auto_offset_reset="none").start()
        async with world.instance(seats()) as one:
            assert table(one) == rows


async def test_table_of_an_emptied_topic_is_empty_and_is_followed(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        await fill(world, 1)
        ends = [TopicPartition("planes", number) for number in range(4)]
        await world.admin.delete_records(dict.fromkeys(ends, -1))
        async with asyncio.timeout(60), world.instance(seats()) as one:
            assert table(one) == {}
            await follows(one, await fill(world, 2, planes=7))


async def test_table_keeps_its_rows_while_its_topic_is_deleted_until_it_is_created_again(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        rows = await fill(world, 1)
        async with asyncio.timeout(60), world.instance(seats()) as one:
            await world.admin.delete_topics(["planes"])
            consumer = one._global._consumer
            assert consumer is not None
            await until(lambda: not consumer.partitions_of("planes"), "the deletion is noticed")
            async with Producer(world.cluster.bootstrap_servers) as other:  # the one that filled it would create it
                await other.send_and_wait("in", b"plane-1", b"flight")
            await world.output("out", lambda sent: sent == {b"flight": 1}, one)
            assert table(one) == rows
            assert "planes" not in await world.admin.list_topics(), "its reader does not create it"
            await create_again(world)
            await follows(one, await fill(world, 2, planes=7))


async def test_aborted_rows_are_left_out_and_an_open_transaction_keeps_no_instance_from_starting(
    tmp_path: Path,
) -> None:
    async with (
        streams_world(tmp_path, topics=TOPICS) as world,
        Producer(world.cluster.bootstrap_servers, transactional_id="rows") as producer,
    ):
        rows = await fill(world, 1)
        await producer.begin_transaction()
        await producer.send("planes", b"7", b"plane-1")
        await producer.flush()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("planes", b"8", b"plane-2")
        await producer.flush()
        async with world.instance(seats()) as one:
            assert table(one) == rows
            await producer.commit_transaction()
            await follows(one, rows | {b"plane-2": 8})


async def test_missing_topic_of_a_global_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topic_manager, "MISSING_TOPIC_S", 0.2)
    async with streams_world(tmp_path) as world:
        with pytest.raises(StreamsError, match="the topic of a global table planes does not exist: create it first"):
            await world.instance(seats()).start()
        await world.admin.create_topics([NewTopic(name="planes", partitions=1, replication_factor=1)])
        async with asyncio.timeout(30), world.instance(seats()) as one:
            assert table(one) == {}


async def test_table_is_read_again_if_records_are_deleted_that_it_is_about_to_read(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=TOPICS) as world:
        await fill(world, 1)
        async with world.instance(seats()) as one:
            consumer = one._global._consumer
            assert consumer is not None
            partitions = sorted(consumer.assignment())
            consumer.pause(*partitions)
            await fill(world, 2)
            await until(lambda: any(one.buffered for one in consumer._core.assignment), "the last fetch has ended")
            await fill(world, 3)
            await world.admin.delete_records(dict.fromkeys(partitions, -1))
            rows = await fill(world, 4, planes=7)
            consumer.resume(*partitions)
            await follows(one, rows)
