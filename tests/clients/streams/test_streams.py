"""Applications are correct through restarts, moves, resizes and failed transactions.

Method: a real cluster and real instances in one process; what comes out is compared with what was sent in. Killed
processes are in `test_instances.py`.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from anabranch import Consumer, Producer, TopicPartition
from anabranch.clients.directory_lock import DirectoryInUse
from anabranch.clients.streams import handover_writer, internal_topic_manager
from anabranch.clients.streams.config import AT_LEAST_ONCE, StreamsConfig
from anabranch.clients.streams.failures import DEAD_LETTER, FAIL, SKIP, RecordFailed
from anabranch.clients.streams.serdes import BYTES, JSON, TEXT
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.streams_errors import StreamsError, TasksMigrated
from anabranch.clients.streams.task_disk import DATA_FILE
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.windows import JoinWindows
from anabranch.clients.topic_admin import NewTopic
from anabranch.protocol import linear_hashing
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.hashing import murmur2
from tests.clients.streams.world import World, counts, streams_world, until


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", AT_LEAST_ONCE])
async def test_state_is_restored_from_disk_or_changelog(guarantee: str, tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await world.feed(800)
        async with world.instance(counts(), processing_guarantee=guarantee) as one:
            await world.counted(one)
            assert one.restored == 0
        await world.feed(400)
        async with world.instance(counts(), processing_guarantee=guarantee) as one:
            await world.counted(one)
            assert one.restored == 0, "what was on the disk was read again"
        await world.feed(400)
        async with world.instance(counts(), "elsewhere", processing_guarantee=guarantee) as one:
            await world.counted(one)
            assert one.restored >= len(world.expected)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", AT_LEAST_ONCE])
async def test_state_moves_with_its_keys_through_resizes(
    guarantee: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover_writer, "HANDOVER_KEYS", 30)  # several transactions each
    async with streams_world(tmp_path) as world:
        await world.feed(2000)
        async with world.instance(counts(), processing_guarantee=guarantee) as one:
            await world.counted(one)
            for count in (8, 3, 5):
                before = one.moves.keys
                await world.admin.create_partitions("in", count, allow_shrink=True)
                await world.feed(400)
                await world.counted(one)
                if count == 8:
                    assert one.moves.held == len(world.expected)
                    assert one.moves.keys == moved(world, 4, 8), "all that moved, and no more"
                    assert one.moves.copied == one.moves.keys
                else:
                    assert one.moves.keys > before
        await world.feed(500)
        async with world.instance(counts(), "elsewhere", processing_guarantee=guarantee) as other:
            await world.counted(other)
            held = {task.id.partition: dict(task.stores["counts"].items()) for task in other.tasks.values()}
            assert sum(map(len, held.values())) == len(world.expected), "a key is in two stores"


async def test_state_moves_with_its_keys_below_the_odd_part_and_back(tmp_path: Path) -> None:
    """3 -> 2 -> 1 -> 5: partitions with keys of several residues give and get them."""
    widths = (3, 2, 1, 5)
    async with streams_world(tmp_path, topics=("out",)) as world:
        await world.topics("in", partitions=widths[0])
        await world.feed(400)
        async with world.instance(counts()) as one:
            await world.counted(one)
            for before, after in pairwise(widths):
                expected = one.moves.keys + moved(world, before, after, base=3)
                await world.admin.create_partitions("in", after, allow_shrink=True)
                await world.feed(500)
                await world.counted(one)
                await until(partial(has_moved, one, expected), "all that moves has moved, and no more")
            await until(lambda: not any(task.state_manager.changed for task in one.tasks.values()), "all is committed")
            places = sorted(
                (k, task.id.partition) for task in one.tasks.values() for k, _ in task.stores["counts"].items()
            )
            assert places == sorted((key, linear_hashing.address(murmur2(key), 3, 5)) for key in world.expected)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", AT_LEAST_ONCE])
async def test_task_that_starts_with_a_new_changelog_can_commit(guarantee: str, tmp_path: Path) -> None:
    """Only such tasks get records: nothing else reports the new partitions to the producer."""
    async with streams_world(tmp_path) as world:
        await world.feed(500)
        async with world.instance(counts(), processing_guarantee=guarantee) as one:
            await world.counted(one)
            await world.admin.create_partitions("in", 8)
            await until(lambda: one.moves.deliveries == 4, "what moves has moved")
            for key in [key for key in world.expected if linear_hashing.address(murmur2(key), 1, 8) >= 4]:
                world.expected[key] += 1
                await world.producer.send("in", b"", key)
            await world.counted(one)
            await until(lambda: not any(task.state_manager.changed for task in one.tasks.values()), "all is committed")


def has_moved(streams: Streams, keys: int) -> bool:
    return streams.moves.keys == keys


def moved(world: World, before: int, after: int, *, base: int = 1) -> int:
    hashes = [murmur2(key) for key in world.expected]
    return sum(linear_hashing.address(one, base, before) != linear_hashing.address(one, base, after) for one in hashes)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2"])
async def test_instance_that_lost_its_tasks_hands_over_nothing(guarantee: str, tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await world.feed(500)
        async with world.instance(counts(), processing_guarantee=guarantee) as one:
            await world.counted(one)
            committer, manager, refused = one._committer, one._manager, 0
            consumer, recover = one._consumer, manager.recover
            group = consumer.group_metadata

            async def count(error: TasksMigrated) -> None:
                nonlocal refused
                refused += 1
                await recover(error)

            # All is committed, so nothing but the hand-over itself would have to be agreed to.
            await until(lambda: not committer.open, "the last commit")
            manager.recover = count  # type: ignore[method-assign]
            consumer.group_metadata = (  # type: ignore[method-assign]
                lambda: group()._replace(generation_id=group().generation_id - 1)
            )
            await world.admin.create_partitions("in", 8)
            await until(lambda: refused >= 2 or one.moves.keys > 0, "it tries to hand over")
            assert one.moves.keys == 0
            consumer.group_metadata, expected = group, moved(world, 4, 8)  # type: ignore[method-assign]
            await world.feed(500)
            await world.counted(one)
            assert one.moves.keys == expected


async def test_deleted_key_does_not_come_back_from_a_store_that_missed_its_deletion(tmp_path: Path) -> None:
    """Compaction removes the deletion from the changelog in the end; the instance was stopped for longer."""
    cleaning = {"log_segment_bytes": "400", "log_cleaner_delete_retention_ms": "1", "log_cleaner_backoff_ms": "20"}
    topology = Topology()
    topology.table("in", value=BYTES).to("out", value=BYTES)
    async with streams_world(tmp_path, topics=("out",), log_cleaner_min_cleanable_ratio="0", **cleaning) as world:
        await world.topics("in", partitions=1)

        async def feed(one: Streams, key: bytes, value: bytes | None) -> None:
            processed = one.processed
            await world.producer.send_and_wait("in", value, key)
            await until(lambda: one.processed > processed and not one.progress()[0].end < 0, "it is processed")

        async with world.instance(topology) as one:
            await feed(one, b"gone", b"1")
        async with world.instance(topology, "two") as two:
            await feed(two, b"gone", None)
            while b"gone" in await keys_in(world, "app-in-table-changelog"):
                await feed(two, b"other", b"1")
        data = tmp_path / "one" / "app" / "0_0" / DATA_FILE
        a_day_ago_s = data.stat().st_mtime - 24 * 3600
        os.utime(data, (a_day_ago_s, a_day_ago_s))
        async with world.instance(topology) as one:
            await feed(one, b"last", b"1")
            (task,) = one.tasks.values()
            assert dict(task.stores["in-table"].items()) == {b"other": b"1", b"last": b"1"}


async def keys_in(world: World, topic: str) -> set[bytes | None]:
    """The keys of all records of a topic with one partition."""
    place, keys = TopicPartition(topic, 0), set[bytes | None]()
    async with Consumer(bootstrap_servers=world.cluster.bootstrap_servers) as reader:
        await reader.assign([place])
        (end,) = (await reader.end_offsets([place])).values()
        await reader.seek_to_beginning(place)
        while reader.position(place) < end:
            keys |= {record.key for rows in (await reader.getmany(timeout_ms=100)).values() for record in rows}
    return keys


async def test_second_instance_gets_its_share_and_returns_it_under_load(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        enough = asyncio.Event()

        async def feed() -> None:
            while not enough.is_set():
                await world.feed(50)
                await asyncio.sleep(0.02)

        # Commits are rare: whoever gives a task up has something to commit.
        async with world.instance(counts(), commit_interval_ms=1000) as one:
            feeding = asyncio.create_task(feed())
            async with world.instance(counts(), "two", commit_interval_ms=1000) as two:
                await until(lambda: running(one) == running(two) == 2, "both have their share")
                await until(lambda: two.processed > 0, "the second works")
            await until(lambda: running(one) == 4, "all is back")
            enough.set()
            await feeding
            await world.counted(one)


async def test_task_starts_although_commits_of_others_follow_one_another(tmp_path: Path) -> None:
    """With a backlog, and commits that take longer than their interval, nothing happens between two commits."""
    settings = {"commit_interval_ms": 1, "max_poll_records": 10}
    async with streams_world(tmp_path) as world, world.instance(counts(), **settings) as one:
        async with world.instance(counts(), "two", **settings) as two:
            await until(lambda: running(one) == running(two) == 2, "both have their share")
            feeding = asyncio.create_task(world.feed(60_000))
        await until(lambda: running(one) == 4, "all is back")
        assert one.processed < 25_000, "it ran the others only when its own backlog of 30,000 records was processed"
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", AT_LEAST_ONCE])
async def test_commit_delayed_by_rebalance_follows_its_end(guarantee: str, tmp_path: Path) -> None:
    rarely = {"commit_interval_ms": 600_000, "transaction_timeout_ms": 600_000, "processing_guarantee": guarantee}
    async with (
        streams_world(tmp_path) as world,
        world.instance(counts(), **rarely) as one,
        world.instance(counts(), "two") as two,
    ):
        await until(lambda: running(one) == running(two) == 2, "both have their share")
        consumer, manager = one._consumer, one._manager
        free, getmany, polls = asyncio.Event(), consumer.getmany, 0
        held, ask = asyncio.Event(), two._consumer.getmany

        async def hold(**how: Any) -> Any:
            held.set()
            await free.wait()
            return await ask(**how)

        async def count(**how: Any) -> Any:
            nonlocal polls
            polls += 1
            return await getmany(**how)

        two._consumer.getmany = hold  # type: ignore[method-assign]
        await world.feed(100)
        await held.wait()
        consumer.enforce_rebalance()
        await until(lambda: consumer.rebalancing, "the group waits for the second instance")
        manager.machine.commit_schedule.due = asyncio.get_running_loop().time()
        consumer.getmany = count  # type: ignore[method-assign]
        await world.feed(100)
        await until(lambda: manager.machine.commit_schedule.put_off, "a commit is due that has to wait")
        before = polls
        await asyncio.sleep(0.3)
        assert polls - before < 20, "it looks again and again whether the rebalance is over"
        free.set()
        await world.counted(one, two)  # not in ten minutes, but as soon as the rebalance is over


async def test_instance_with_long_commit_interval_commits_when_stopped(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        loop = asyncio.get_running_loop()
        async with world.instance(counts(), commit_interval_ms=600_000, transaction_timeout_ms=600_000) as one:
            await until(
                lambda: running(one) == 4 and one._manager.machine.commit_schedule.due > loop.time(),
                "the next is far away",
            )
            await world.feed(100)
            await until(lambda: one.processed == 100, "all is processed, and nothing committed")
        await world.counted()


def running(one: Streams) -> int:
    return sum(task.state is State.RUNNING for task in one.tasks.values())


async def test_standby_takes_over_without_restoring(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await world.feed(400)
        async with world.instance(counts(), num_standby_replicas=1) as one:
            async with world.instance(counts(), "two", num_standby_replicas=1) as two:
                await until(lambda: running(one) == running(two) == 2, "both have their share")
                await world.feed(400)
                await world.counted(one, two)
                await until(lambda: copies(one, two), "the copies are complete")
            before = one.restored
            await until(lambda: running(one) == 4, "all runs here")
            assert one.restored == before, "a copy that was complete was read again"
            await world.feed(400)
            await world.counted(one)


def copies(one: Streams, two: Streams) -> bool:
    """Whether each copy has what its original has."""
    for here, there in ((one, two), (two, one)):
        for task in here.tasks.values():
            if task.state is State.STANDBY:
                original = there.tasks.get(task.id)
                if original is None or dict(original.state_manager.disk.items("counts")) != dict(
                    task.state_manager.disk.items("counts")
                ):
                    return False
    return len(one.tasks) == len(two.tasks) == 4


async def test_failed_transaction_leaves_no_trace(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await world.feed(400)
        async with world.instance(counts(), commit_interval_ms=200) as one:
            await world.counted(one)
            for _ in range(3):
                await world.feed(500)
                # Whoever starts with the same transactional id aborts what is under way.
                fencing = Producer(
                    world.cluster.bootstrap_servers, transactional_id=f"app-{one.process_id.hex()}", client_id="fencing"
                )
                async with fencing:
                    pass
                await world.feed(500)
                await world.counted(one)


async def test_words_are_counted_and_rows_joined(tmp_path: Path) -> None:
    topology = Topology()
    words = topology.stream("lines", value=TEXT).flat_map(
        lambda key, line: [(word.encode(), b"") for word in line.split()]
    )
    words.repartition("words").count("counts").to("out")
    prices = topology.table("prices", value=JSON)
    topology.stream("orders", value=JSON).join(prices, lambda amount, price: amount * price).to("bills")
    async with streams_world(tmp_path, topics=("lines", "orders", "prices", "out", "bills")) as world:
        for line in (b"to be or not", b"to be that is", b"the question"):
            await world.producer.send_and_wait("lines", line, b"hamlet")
        await world.producer.send_and_wait("prices", b"3", b"apple")
        async with world.instance(topology) as one:
            expected = {b"to": 2, b"be": 2, b"or": 1, b"not": 1, b"that": 1, b"is": 1, b"the": 1, b"question": 1}
            await world.output("out", lambda table: table == expected, one)
            await until(lambda: sum(task.processed for task in one.tasks.values()) >= 3 + 10 + 1, "the price is there")
            await world.producer.send_and_wait("orders", b"14", b"apple")
            await world.output("bills", lambda table: table == {b"apple": 42}, one)


async def test_stored_records_of_joined_topics_are_processed_in_the_order_of_time(tmp_path: Path) -> None:
    """An instance that is started later joins what one that was there all the time would have joined."""
    topology, window = Topology(), JoinWindows(before_ms=0, after_ms=10_000)
    payments = topology.stream("payments", value=JSON)
    paid = topology.stream("orders", value=JSON).join_within(
        payments, window, lambda *both: both, store="paid", left=True
    )
    seen: list[tuple[int, int]] = []
    paid.peek(lambda key, both: seen.append(both)).to("out")
    async with streams_world(tmp_path, topics=("orders", "payments", "out")) as world:
        for number in range(1500):
            value, key = b"%d" % number, b"key-%d" % number
            await world.producer.send("orders", value, key, timestamp_ms=1000 * number)
            await world.producer.send("payments", value, key, timestamp_ms=1000 * number + 500)
        await world.producer.flush()
        async with world.instance(topology) as one:
            await until(lambda: one.processed == 3000, "all records are read")
    assert sorted(seen) == [(number, number) for number in range(1500)]


async def test_join_of_topics_with_different_counts_ends_with_error(tmp_path: Path) -> None:
    topology = Topology()
    prices = topology.table("prices")
    topology.stream("in").join(prices, lambda amount, price: price).to("out")
    async with streams_world(tmp_path) as world:
        await world.topics("prices", partitions=3)
        async with world.instance(topology) as one:
            with pytest.raises(StreamsError, match="ASSIGNMENT_ERROR"):
                await one.wait_failed()


async def test_joined_topics_are_resized_one_after_another(tmp_path: Path) -> None:
    """The joined price follows from the records before each cut."""
    keys = [b"key-%d" % number for number in range(40)]
    topology = Topology()
    prices = topology.table("prices", value=JSON)
    prices.to("known")
    topology.stream("in").count("counts").join(prices, lambda count, price: [count, price]).to("out")
    async with streams_world(tmp_path, topics=("in", "prices", "known", "out")) as world:

        async def send(topic: str, value: bytes) -> None:
            for key in keys:
                await world.producer.send(topic, value, key)
            await world.producer.flush()

        async def resize(topic: str, count: int) -> None:
            await world.admin.create_partitions(topic, count, allow_shrink=True)

        async def all_become(topic: str, value: object) -> None:
            await world.output(topic, lambda table: table == dict.fromkeys(keys, value), one, two)

        async with world.instance(topology) as one, world.instance(topology, "two") as two:
            await send("prices", b"1")
            await all_become("known", 1)
            await send("in", b"")
            await all_become("out", [1, 1])
            await resize("in", 8)
            await send("in", b"")  # they wait, behind their cut, for the prices to be cut, too
            await send("prices", b"2")
            await resize("prices", 8)
            await all_become("out", [2, 2])
            await resize("prices", 3)
            await send("prices", b"3")  # and now prices wait
            await send("in", b"")
            await all_become("out", [3, 2])
            await resize("in", 3)
            await all_become("known", 3)
            await send("in", b"")
            await all_become("out", [4, 3])
            assert one.moves.keys + two.moves.keys > len(keys)


async def test_differently_resized_join_ends_with_error_unless_repartitioned(
    tmp_path: Path,
) -> None:
    def bills(*, apart: bool) -> Topology:
        topology = Topology()
        amounts = topology.stream("in")
        if apart:
            new = topology.stream("prices").repartition("prices")
            prices = new.aggregate("latest", lambda: b"", lambda key, price, _: price, value=BYTES)
            amounts = amounts.repartition("amounts")
        else:
            prices = topology.table("prices")
        amounts.join(prices, lambda amount, price: int(price)).to("out")
        return topology

    async with streams_world(tmp_path) as world:
        await world.topics("prices")
        async with world.instance(bills(apart=False)) as one:
            for topic, count in (("in", 8), ("prices", 6)):
                await world.admin.create_partitions(topic, count)
            with pytest.raises(StreamsError, match=r"their histories differ|ASSIGNMENT_ERROR"):
                await one.wait_failed()
        async with world.instance(bills(apart=True), "two", application_id="apart") as one:
            await world.producer.send_and_wait("prices", b"3", b"apple")
            await until(lambda: one.processed >= 2, "the price has gone through both topics")
            await world.producer.send_and_wait("in", b"1", b"apple")
            await world.output("out", lambda table: table == {b"apple": 3}, one)
            await world.admin.create_partitions("prices", 9)
            await world.producer.send_and_wait("prices", b"5", b"apple")
            await until(lambda: one.processed >= 6, "the application goes on as wide as it was")
            await world.producer.send_and_wait("in", b"1", b"apple")
            await world.output("out", lambda table: table == {b"apple": 5}, one)


async def test_failed_record_is_not_committed(tmp_path: Path) -> None:
    topology, failing = Topology(), [True]

    def add(key: bytes, value: bytes, count: int) -> int:
        if failing and count == 3:
            raise ZeroDivisionError
        return count + 1

    topology.stream("in").aggregate("counts", lambda: 0, add).to("out")
    async with streams_world(tmp_path) as world:
        await world.feed(400)
        async with world.instance(topology, commit_interval_ms=5000) as one:
            with pytest.raises(
                RecordFailed, match=r"in-\d at offset \d+, key b'key-\d+', cannot be processed: Zero"
            ) as caught:
                await one.wait_failed()
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
        failing.clear()
        async with world.instance(topology) as one:
            await world.counted(one)


@pytest.mark.parametrize(("guarantee", "failure"), [(AT_LEAST_ONCE, KafkaError), ("exactly_once_v2", StreamsError)])
async def test_refused_output_ends_instance(guarantee: str, failure: type[Exception], tmp_path: Path) -> None:
    """Each of eight outputs is refused: the first error ends the instance, the others are not reported as unread.

    Processing the records again, as after another aborted transaction, would have the same end for ever.
    """
    topology = Topology()
    topology.stream("in").map_values(lambda _: bytes(2_000_000)).to("out", value=BYTES)
    async with streams_world(tmp_path) as world:
        for number in range(8):
            await world.producer.send("in", b"", b"%d" % number)
        instance = world.instance(topology, processing_guarantee=guarantee)
        with pytest.raises(failure, match="MESSAGE_TOO_LARGE"):
            async with asyncio.timeout(60), instance:
                await instance.wait_failed()
        async with reading(world, "out") as consumer:
            assert not await consumer.getmany(timeout_ms=100)


def reading(world: World, topic: str) -> Consumer:
    return Consumer(
        topic,
        bootstrap_servers=world.cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


def brittle() -> Topology:
    """Counts numbers, decodes JSON, and cannot stand a 13."""
    topology = Topology()

    def add(key: bytes, value: int, total: int) -> int:
        if value == 13:
            raise ValueError("bad luck")
        return total + 1

    numbers = topology.stream("in", value=JSON)
    numbers.map_values(lambda value: value).to("seen")
    numbers.aggregate("counts", lambda: 0, add).to("out")
    return topology


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", AT_LEAST_ONCE])
@pytest.mark.parametrize("handler", [SKIP, DEAD_LETTER])
async def test_failed_records_are_skipped_or_sent_to_dead_letter_topic(
    handler: str, guarantee: str, tmp_path: Path
) -> None:
    async with streams_world(tmp_path) as world:
        settings: dict[str, Any] = {"deserialization_handler": handler, "processing_handler": handler}
        if handler == DEAD_LETTER:
            await world.topics("dead", partitions=1)
            settings["errors_dead_letter_queue_topic_name"] = "dead"
        await world.topics("seen")
        values = [b"1", b"no number", b"13", b"2"]
        stored = [await world.producer.send_and_wait("in", value, b"key") for value in values]
        async with world.instance(brittle(), processing_guarantee=guarantee, **settings) as one:
            await world.output("out", lambda table: table == {b"key": 2}, one)
            assert one.dropped == 2
        async with reading(world, "seen") as consumer:
            seen = [await consumer.getone() for _ in range(2)]
            assert [record.value for record in seen] == [b"1", b"2"], "what failed has sent nothing either"
        if handler == DEAD_LETTER:
            async with reading(world, "dead") as consumer:
                dead = [await consumer.getone() for _ in range(2)]
            assert [(record.key, record.value) for record in dead] == [(b"key", b"no number"), (b"key", b"13")]
            for record, where, what in zip(
                dead, stored[1:3], ("JSONDecodeError: ", "ValueError: bad luck"), strict=True
            ):
                facts = {
                    name.removeprefix("__streams.errors."): (text or b"").decode() for name, text in record.headers
                }
                assert (facts["topic"], facts["partition"], facts["offset"]) == (
                    "in",
                    str(where.partition),
                    str(where.offset),
                )
                assert facts["exception"].startswith(what)
                assert facts["message"] in facts["stacktrace"]


async def test_undecodable_record_ends_instance_by_default(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await world.topics("seen")
        place = await world.producer.send_and_wait("in", b"{", b"key")
        where = rf"in-{place.partition} at offset {place.offset}, key b'key', cannot be decoded: JSONDecodeError"
        for _ in range(2):
            async with world.instance(brittle()) as one:
                with pytest.raises(RecordFailed, match=where):
                    await one.wait_failed()


async def test_missing_dead_letter_topic_is_refused_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has just started does not know the topics yet."""
    monkeypatch.setattr(internal_topic_manager, "MISSING_TOPIC_S", 0.2)
    async with streams_world(tmp_path) as world:
        one = world.instance(brittle(), processing_handler=DEAD_LETTER, errors_dead_letter_queue_topic_name="nowhere")
        with pytest.raises(StreamsError, match="the dead letter topic nowhere does not exist: create it first"):
            await one.start()
        monkeypatch.undo()
        starting = asyncio.create_task(one.start())
        await world.admin.create_topics([NewTopic(name="nowhere", partitions=1, replication_factor=1)])
        await starting
        await one.stop()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"processing_handler": "ignore"}, "processing_handler is one of"),
        ({"deserialization_handler": DEAD_LETTER}, "errors_dead_letter_queue_topic_name"),
        ({"processing_handler": FAIL, "errors_dead_letter_queue_topic_name": "t"}, "only if, a handler is dead-letter"),
    ],
)
def test_inconsistent_handler_settings_are_refused(settings: dict[str, str], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=complaint):
        StreamsConfig(application_id="app", bootstrap_servers="x:1", state_dir=tmp_path, **settings)  # type: ignore[arg-type]


async def test_instance_can_be_started_only_once(tmp_path: Path) -> None:
    """After a stop it would read nothing, and `wait_failed` would return at once."""
    async with streams_world(tmp_path) as world:
        one = world.instance(counts())
        await one.stop()
        await one.start()
        for _ in ("it runs", "it was stopped"):
            with pytest.raises(RuntimeError, match="only once: make another Streams"):
                await one.start()
            await one.stop()


async def test_second_instance_in_same_directory_is_refused(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world, world.instance(counts()):
        with pytest.raises(DirectoryInUse, match="another node of this process"):
            await world.instance(counts()).start()


def test_unknown_setting_values_are_refused(tmp_path: Path) -> None:
    for setting in ("processing_guarantee", "task_assignor", "rebalance_protocol", "rack_aware_assignment_strategy"):
        with pytest.raises(ValueError, match=setting):
            StreamsConfig(application_id="a", bootstrap_servers="h:1", state_dir=tmp_path, **{setting: "no"})  # type: ignore[arg-type]
