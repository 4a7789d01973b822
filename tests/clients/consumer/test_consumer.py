"""The consumer's methods with and without a group, with and without order, and with changed topics.

Method: a real cluster in this process. Groups under resizes are in `test_resized_groups`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import Any

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer, TopicPartition
from anabranch.clients.group_admin import committed_offsets
from anabranch.clients.group_kinds import describe_any_group
from anabranch.faults.rule import Rule
from anabranch.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.consumer.groups import TOPIC, History, cluster_and_admin, make_topic, readers, resize, send
from tests.clients.peer import serve


async def test_consumer_without_group_keeps_key_order() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        settings: dict[str, Any] = {"metadata_max_age_ms": 100, "auto_offset_reset": "earliest"}
        seen: dict[bytes | None, list[int]] = {}
        total = 0
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer,
        ):
            assert len(consumer.assignment()) == 2
            number = 0
            for count in (4, 1, 3):
                for _ in range(60):
                    await producer.send(TOPIC, b"%d" % number, b"key-%d" % (number % 6))
                    number += 1
                await producer.flush()
                await resize(admin, count)
                while producer.generation(TOPIC) < (await admin.describe_topic(TOPIC)).generation:
                    producer._network.request_refresh()
                    await asyncio.sleep(0.01)
            while total < number:
                for records in (await consumer.getmany(timeout_ms=100, max_records=7)).values():
                    for record in records:
                        assert record.value is not None
                        seen.setdefault(record.key, []).append(int(record.value))
                        total += 1
            assert all(values == sorted(values) for values in seen.values())
            with pytest.raises(ValueError, match="group_id"):
                await consumer.commit()
            with pytest.raises(ValueError, match="group_id"):
                await consumer.committed(TopicPartition(TOPIC, 0))


@pytest.mark.parametrize("ordered_topic", [True, False], ids=["ordered_delivery=False", "a topic without lineage"])
async def test_unordered_topic_is_read_without_gates(ordered_topic: bool) -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, enable_ordered_delivery=str(ordered_topic).lower())
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(50):
                await producer.send(TOPIC, b"x", b"k", partition=0)
            await producer.flush()
            await admin.create_partitions(TOPIC, 2)
            await admin.wait_until(lambda metadata: len(metadata.topics[TOPIC].partitions) == 2, TOPIC)
            async with Producer(cluster.bootstrap_servers) as newer:
                await newer.send_and_wait(TOPIC, b"x", b"k", partition=1)
            async with Consumer(
                TOPIC,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=history.group,
                auto_offset_reset="earliest",
                ordered_delivery=not ordered_topic,
            ) as consumer:
                taken: set[int] = set()
                while taken != {0, 1}:
                    batch = await consumer.getmany(timeout_ms=60_000, max_records=1)
                    assert batch
                    taken |= {partition.partition for partition in batch}
                    consumer.pause(*(partition for partition in batch if partition.partition == 0))
                    assert all(record.generation == -1 for records in batch.values() for record in records)
                assert consumer.gates() == []


async def test_assigned_lineage_is_that_of_the_assignment() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        await make_topic(admin, 2, "unordered", enable_ordered_delivery="false")
        async with Consumer(TOPIC, "unordered", bootstrap_servers=cluster.bootstrap_servers) as consumer:
            assert [consumer.assigned_lineage(name) for name in ("unordered", "unknown")] == [None, None]
            before = consumer.assigned_lineage(TOPIC)
            assert before is not None and (before.generation, before.count) == (0, 2)
            await resize(admin, 3)
            await consumer._network.wait_for(lambda metadata: metadata.topics[TOPIC].generation == 1)
            assert consumer.assigned_lineage(TOPIC) == before
            while len(consumer.assignment()) < 5:
                await consumer.getmany(timeout_ms=100)
            after = consumer.assigned_lineage(TOPIC)
            assert after is not None and (after.generation, after.count) == (1, 3)


async def test_topic_error_is_raised_and_topic_requested_again() -> None:
    """A poll after the refusal reports the next response, not the old one."""
    refusal = ErrorCode.LEADER_NOT_AVAILABLE

    async def broker(request: MetadataRequest) -> MetadataResponse:
        self = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=peer.port)
        rows = [MetadataResponseTopic(error_code=refusal, name=one.name, partitions=[]) for one in request.topics or ()]
        return MetadataResponse(brokers=[self], controller_id=1, cluster_id="c", topics=rows)

    async with (
        asyncio.timeout(60),
        serve(broker) as peer,
        Consumer("t", bootstrap_servers=peer.address) as consumer,
    ):
        assert await consumer.getmany(timeout_ms=500) == {}, "not usable yet"
        refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for _ in range(2):  # told again when it is answered again
            with pytest.raises(KafkaError) as refused:
                await consumer.getmany(timeout_ms=60_000)
            assert refused.value.code == refusal
        refusal = ErrorCode.INVALID_REPLICATION_FACTOR
        assert await consumer.getmany(timeout_ms=500) == {}, "the old answer does not count any more"


async def test_seek_pause_and_positions() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        where = TopicPartition(TOPIC, 0)
        async with (
            Producer(cluster.bootstrap_servers) as producer,
            Consumer(
                TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
            ) as consumer,
        ):
            for number in range(100):
                await producer.send(TOPIC, b"%d" % number)
            await producer.flush()
            assert (await consumer.getone()).offset == 0
            with pytest.raises(ValueError, match="must not be negative"):
                consumer.seek(where, -1)
            with pytest.raises(ValueError, match=r"must not be above 2\^63 - 1"):
                consumer.seek(where, 2**63)
            with pytest.raises(ValueError, match="the offset to commit of t-0 is negative"):
                await consumer.commit({where: -1})
            assert (consumer.position(where), consumer.highwater(where)) == (1, 100)
            assert consumer.read_from(where) == 0
            consumer.seek(where, 50)
            assert (consumer.read_from(where), consumer.position(where)) == (50, 50)
            assert (await consumer.getone()).offset == 50, "into the middle of what was fetched"
            consumer.pause(where)
            assert await consumer.getmany(timeout_ms=100) == {}
            consumer.resume(where)
            assert [record.offset for record in (await consumer.getmany(timeout_ms=60_000))[where]] == [*range(51, 100)]
            await consumer.commit()
            assert await consumer.committed(where) == 100
            consumer.seek(where, 1_000_000)
            assert (await consumer.getone()).offset == 0, "out of range: earliest"
            count = 0
            async for record in consumer:
                count += 1
                assert record.offset == count
                if count == 5:
                    break


async def make_again(admin: Admin) -> None:
    await admin.delete_topics([TOPIC])
    while True:
        try:
            await make_topic(admin, 1)
            break
        except KafkaError as error:
            assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS, "hidden already, and not gone yet"
            await asyncio.sleep(0.01)


async def test_recreated_topic_is_read_as_new_topic() -> None:
    """Old positions, gates and commits are invalid."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with readers(history, 1) as (reader,):
            async with Producer(cluster.bootstrap_servers, audit=True) as producer:
                await send(producer, admin, 30)
                await resize(admin, 2)
                await send(producer, admin, 30)
                await history.until(lambda: len(history.distinct) == 60)
            await make_again(admin)
            before = len(history.deliveries)

            def of_another() -> set[tuple[int, int]]:
                return {(one.partition, one.offset) for one in history.deliveries[before:]}

            async with Producer(cluster.bootstrap_servers, audit=True) as producer:
                await send(producer, admin, 50)
                await history.until(lambda: len(of_another()) == 50)
                assert of_another() == {(0, offset) for offset in range(50)}
                assert reader.owned == {0}
                await resize(admin, 2)
                await send(producer, admin, 50)
                await history.until(lambda: len(of_another()) == 100)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("late", [False, True], ids=["sent before", "sent after"])
async def test_commit_in_a_deleted_topic_is_none_in_the_next_one_of_its_name(protocol: str, late: bool) -> None:
    """It would make the group pass over the first records of the new topic."""
    async with (
        cluster_and_admin(brokers=1) as (cluster, admin),
        Producer(cluster.bootstrap_servers) as producer,
        Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        await make_topic(admin, 1)
        for number in range(3):
            await producer.send_and_wait(TOPIC, b"%d" % number)
        while consumer.assignment() != {TopicPartition(TOPIC, 0)} or consumer.position(TopicPartition(TOPIC, 0)) < 3:
            await consumer.getmany(timeout_ms=20)
        if late:
            await make_again(admin)
            await consumer._network.refresh()
            commit = asyncio.create_task(consumer.commit())
        else:
            gate = cluster.faults.add(Rule(api=("OffsetCommit",), hold=True, times=1))
            commit = asyncio.create_task(consumer.commit())
            await gate.wait_hit()
            await make_again(admin)
            gate.release()
        with pytest.raises(KafkaError) as refused:
            await commit
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await committed_offsets(admin.network, "g") == {}


async def test_missing_topic_is_awaited_and_not_created() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        history = History(cluster)
        async with readers(history, 1) as (reader,):
            await history.until(
                lambda: reader.consumer._session is not None and reader.consumer._session.membership.stable
            )
            assert await admin.list_topics() == []
            await make_topic(admin, 1)
            async with Producer(cluster.bootstrap_servers, audit=True) as producer:
                await send(producer, admin, 5)
            await history.until(lambda: len(history.distinct) == 5)
        async with Consumer("bad/name", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer:
            with pytest.raises(KafkaError) as refused:
                await consumer.getone()
            assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_consumer_lifecycle() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        consumer = Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="g")
        with pytest.raises(RuntimeError, match="not started"):
            await consumer.getmany()
        await consumer.start()
        with pytest.raises(RuntimeError, match="once"):
            await consumer.start()
        assert await consumer.getmany(timeout_ms=10) == {}
        await consumer.stop()
        await consumer.stop()
        with pytest.raises(RuntimeError, match="stopped"):
            await consumer.getmany()
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert not [name for name in names if name.startswith(("gates", "heartbeat"))]


async def test_invalid_settings_are_refused_with_remedy() -> None:
    with pytest.raises(ValueError, match="at least one topic"):
        Consumer(group_id="g")
    with pytest.raises(ValueError, match="audit needs a group_id"):
        Consumer("t", audit="a")
    with pytest.raises(ValueError, match='"earliest", "latest", "none" or'):
        Consumer("t", auto_offset_reset="soonest")
    for name in ("session_timeout_ms", "rebalance_timeout_ms", "heartbeat_interval_ms", "max_poll_records"):
        with pytest.raises(ValueError, match=f"{name} must be positive"):
            Consumer("t", **{name: 0})  # type: ignore[arg-type]
    for name in ("auto_commit_interval_ms", "fetch_max_wait_ms"):
        with pytest.raises(ValueError, match=f"{name} must not be negative"):
            Consumer("t", **{name: -1})  # type: ignore[arg-type]
    for name in ("session_timeout_ms", "rebalance_timeout_ms", "fetch_max_wait_ms"):
        for value in (2**31, 6000.5):
            with pytest.raises(ValueError, match=f"{name} is a whole number up to 2147483647, not {value}"):
                Consumer("t", **{name: value})  # type: ignore[arg-type]
    for name in ("request_timeout_ms", "metadata_max_age_ms"):
        with pytest.raises(ValueError, match=f"{name} must be positive, not 0"):
            Consumer("t", **{name: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="heartbeat_interval_ms=6000 must be less than session_timeout_ms=6000"):
        Consumer("t", group_id="g", session_timeout_ms=6000, heartbeat_interval_ms=6000)
    consumer = Consumer("t", bootstrap_servers="127.0.0.1:1")
    consumer._network_config = type(consumer._network_config)(
        bootstrap_servers=(("127.0.0.1", 1),), bootstrap_timeout_ms=50
    )
    with pytest.raises(ConnectionError, match="no bootstrap server responded"):
        await consumer.start()


async def test_only_assigned_partitions_are_read_and_kept_ones_continue() -> None:
    first, second, third = (TopicPartition(TOPIC, index) for index in range(3))
    async with cluster_and_admin(brokers=1) as (cluster, admin), Producer(cluster.bootstrap_servers) as producer:
        await make_topic(admin, 3)
        for index in range(3):
            for number in range(2):
                await producer.send_and_wait(TOPIC, b"%d" % number, partition=index)
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
        consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, **settings)
        await consumer.assign([first])
        async with consumer:
            assert consumer.assignment() == {first}
            assert (await consumer.getone()).partition == 0
            await consumer.assign([first, second])
            assert (consumer.position(first), consumer.position(second)) == (1, 0)
            read = [await consumer.getone() for _ in range(3)]
            assert sorted((one.partition, one.offset) for one in read) == [(0, 1), (1, 0), (1, 1)]
            await consumer.assign([third])
            assert [(await consumer.getone()).partition for _ in range(2)] == [2, 2]
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await consumer.assign([TopicPartition(TOPIC, 7)])
            assert consumer.assignment() == {third}


@pytest.mark.parametrize("chosen", [False, True], ids=["topics", "assign"])
async def test_positions_without_group_survive_a_broker_that_does_not_know_the_topic(chosen: bool) -> None:
    """Nobody else knows them: `latest` would pass over the records of the meantime."""
    where = TopicPartition(TOPIC, 0)
    async with cluster_and_admin(brokers=2) as (cluster, admin), Producer(cluster.bootstrap_servers) as producer:
        cluster.faults.add(Rule(brokers=(2,), stale_metadata=True))
        await admin.create_topics([NewTopic(name=TOPIC, assignments={0: [1]})])
        await admin.wait_until(lambda metadata: metadata.leader(TOPIC, 0) == 1, TOPIC)
        await producer.send_and_wait(TOPIC, b"before")
        settings: dict[str, Any] = {"auto_offset_reset": "latest", "fetch_max_wait_ms": 20}
        consumer = Consumer(*([] if chosen else [TOPIC]), bootstrap_servers=cluster.bootstrap_servers, **settings)
        if chosen:
            await consumer.assign([where])
        async with consumer:
            while where not in consumer.assignment() or consumer.position(where) < 1:
                assert await consumer.getmany(timeout_ms=20) == {}
            shown = await consumer._network.refresh_from([2], timeout_ms=10_000)
            assert TOPIC not in shown.topics
            assert await consumer.getmany() == {}
            await producer.send_and_wait(TOPIC, b"meanwhile")
            cluster.faults.clear()
            assert (await consumer.getone()).value == b"meanwhile"


async def test_stop_ends_a_request_of_another_task() -> None:
    async with (
        cluster_and_admin(brokers=1) as (cluster, admin),
        Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer,
    ):
        await make_topic(admin, 1)
        await consumer.assign([TopicPartition(TOPIC, 0)])
        waiting = asyncio.create_task(consumer.getmany(timeout_ms=600_000))
        await asyncio.sleep(0)
        await consumer.stop()
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="was stopped"):
                await waiting


async def test_missing_or_impossible_assignment_is_refused() -> None:
    with pytest.raises(ValueError, match="a consumer without topics"):
        await Consumer("t").assign([TopicPartition("t", 0)])
    async with (
        cluster_and_admin(brokers=1) as (cluster, _),
        Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer,
    ):
        with pytest.raises(RuntimeError, match="choose partitions by `assign`"):
            await consumer.getone()
        for call in (consumer.assign, consumer.end_offsets):
            with pytest.raises(TypeError, match="a partition is a TopicPartition"):
                await call("t")  # type: ignore[arg-type]


ENDLESS = """
import asyncio, contextlib, sys
from anabranch import Consumer

async def main():
    settings = {"group_id": "g", "auto_offset_reset": "earliest"}
    async with Consumer("t", bootstrap_servers=sys.argv[1], **settings) as consumer:
        async for record in consumer:
            print(record.value.decode(), flush=True)

with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
"""


async def test_interrupted_record_loop_commits_and_leaves_group() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin), Producer(cluster.bootstrap_servers) as producer:
        await make_topic(admin, 1, "t")
        await producer.send_and_wait("t", b"one")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ENDLESS, cluster.bootstrap_servers),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"one\n"
            process.send_signal(signal.SIGINT)
            assert await process.communicate() == (b"", b"")
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended, unless the test fails
                process.kill()
        assert process.returncode == 0
        group = await describe_any_group(admin.network, "g")
        assert (group.members, await committed_offsets(admin.network, "g")) == ((), {TopicPartition("t", 0): 1})
