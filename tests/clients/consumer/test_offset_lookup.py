"""Offset queries of an application, and seeks with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch import Admin, Consumer, Producer, TopicPartition
from anabranch.clients.consumer import offset_lookup
from anabranch.clients.consumer.offset_lookup import OffsetAndTimestamp, OffsetResets
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import KafkaError
from tests.clients.consumer.groups import TOPIC, cluster_and_admin, make_topic, resize

BOTH = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
MINUTE_MS = 60_000
LIST_OFFSETS = 2
BEGAN_MS = 1_700_000_000_000


def reader(cluster: Cluster, **settings: Any) -> Consumer:
    return Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, fetch_max_wait_ms=20, **settings)


async def fill(producer: Producer, admin: Admin) -> None:
    """Partition 0: a record for each of ten minutes. Partition 1: nothing."""
    await make_topic(admin, 2)
    for minute in range(10):
        await producer.send_and_wait(TOPIC, b"", b"", partition=0, timestamp_ms=BEGAN_MS + minute * MINUTE_MS)


async def test_beginning_and_end_offsets() -> None:
    async with (
        cluster_and_admin(brokers=2) as (cluster, admin),
        Producer(cluster.bootstrap_servers) as producer,
        reader(cluster) as consumer,
    ):
        await fill(producer, admin)
        await admin.delete_records({BOTH[0]: 3})
        assert await consumer.beginning_offsets(BOTH) == {BOTH[0]: 3, BOTH[1]: 0}
        assert await consumer.end_offsets(BOTH) == {BOTH[0]: 10, BOTH[1]: 0}


async def test_offsets_for_times_are_first_records_since_timestamp() -> None:
    async with (
        cluster_and_admin(brokers=2) as (cluster, admin),
        Producer(cluster.bootstrap_servers) as producer,
        reader(cluster) as consumer,
    ):
        await fill(producer, admin)
        for minutes, expected in ((0, 0), (2.5, 3), (9, 9)):
            at_ms = BEGAN_MS + int(minutes * MINUTE_MS)
            found = await consumer.offsets_for_times(dict.fromkeys(BOTH, at_ms))
            assert found[BOTH[0]] == OffsetAndTimestamp(expected, BEGAN_MS + expected * MINUTE_MS)
            assert found[BOTH[1]] is None
        too_late = {BOTH[0]: BEGAN_MS + 9 * MINUTE_MS + 1}
        assert await consumer.offsets_for_times(too_late) == {BOTH[0]: None}
        with pytest.raises(ValueError, match="not be negative"):
            await consumer.offsets_for_times({BOTH[0]: -1})


async def test_seek_to_beginning_and_end() -> None:
    async with cluster_and_admin(brokers=2) as (cluster, admin), Producer(cluster.bootstrap_servers) as producer:
        await fill(producer, admin)
        await admin.delete_records({BOTH[0]: 3})
        async with reader(cluster) as consumer:
            assert consumer.assignment() == set(BOTH)
            await consumer.seek_to_beginning()
            assert [(await consumer.getone()).offset for _ in range(7)] == list(range(3, 10))
            await consumer.seek_to_beginning(BOTH[0])
            assert (await consumer.getone()).offset == 3
            await consumer.seek_to_end()
            assert [consumer.position(one) for one in BOTH] == [10, 0]
            await producer.send_and_wait(TOPIC, b"", b"", partition=0)
            assert (await consumer.getone()).offset == 10


async def test_read_committed_end_offset_is_last_stable_offset() -> None:
    async with cluster_and_admin(
        brokers=1, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1"
    ) as (cluster, admin):
        await make_topic(admin, 1)
        async with (
            Producer(cluster.bootstrap_servers, transactional_id="t") as producer,
            reader(cluster, isolation_level="read_committed") as committed,
            reader(cluster) as everything,
        ):
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, b"", b"", partition=0)
                assert await committed.end_offsets(BOTH[:1]) == {BOTH[0]: 0}
                assert await everything.end_offsets(BOTH[:1]) == {BOTH[0]: 1}
            await committed.seek_to_beginning()
            assert (await committed.getone()).offset == 0, "its end is known when it can be read"
            assert await committed.end_offsets(BOTH[:1]) == {BOTH[0]: 2}


async def test_impossible_topic_is_refused_at_once() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with reader(cluster) as consumer:
            with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
                await consumer.end_offsets([TopicPartition("no topic", 0)])


async def test_partition_that_merge_removed_is_refused_at_once() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin), reader(cluster) as consumer:
        await make_topic(admin, 2)
        assert await consumer.end_offsets(BOTH) == {BOTH[0]: 0, BOTH[1]: 0}
        await admin.create_partitions(TOPIC, 1, allow_shrink=True)
        await admin.wait_until(lambda metadata: 1 not in metadata.topics[TOPIC].partitions, TOPIC)
        async with asyncio.timeout(10):
            for query in (
                consumer.end_offsets(BOTH),
                consumer.beginning_offsets(BOTH),
                consumer.offsets_for_times(dict.fromkeys(BOTH, BEGAN_MS)),
                admin.delete_records({BOTH[1]: 0}),
            ):
                with pytest.raises(KafkaError, match=r"UNKNOWN_TOPIC.* has no partition 1: a merge has removed it$"):
                    await query
        await resize(admin, 2)
        assert await consumer.end_offsets(BOTH) == {BOTH[0]: 0, BOTH[1]: 0}, "it is there again"


async def test_reset_by_duration_starts_at_first_record_within_duration() -> None:
    now_ms = BEGAN_MS + 10 * MINUTE_MS
    async with cluster_and_admin(brokers=2) as (cluster, admin), Producer(cluster.bootstrap_servers) as producer:
        await fill(producer, admin)
        for duration, positions in (("PT2M30S", [8, 0]), ("PT10M", [0, 0]), ("PT30S", [10, 0]), ("P99999D", [0, 0])):
            async with reader(
                cluster, auto_offset_reset=f"by_duration:{duration}", clock_ms=lambda: now_ms
            ) as consumer:
                assert [consumer.position(one) for one in BOTH] == positions


@pytest.mark.parametrize("policy", ["by_duration:1h", "by_duration:-PT1H", "by_duration", "erliest"])
def test_unknown_reset_policy_is_refused(policy: str) -> None:
    with pytest.raises(ValueError, match=r"ISO-8601|by_duration:PT1H"):
        Consumer(TOPIC, auto_offset_reset=policy)


async def test_each_leader_gets_one_request_for_all_of_its_partitions() -> None:
    async with cluster_and_admin(brokers=2) as (cluster, admin), reader(cluster) as consumer:
        await make_topic(admin, 12)
        partitions = [TopicPartition(TOPIC, index) for index in range(12)]
        assert await consumer.end_offsets(partitions) == dict.fromkeys(partitions, 0)
        before = list_offsets_requests(cluster)
        assert await consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert [after - count for after, count in zip(list_offsets_requests(cluster), before, strict=True)] == [1, 1]
        before = list_offsets_requests(cluster)
        async with reader(cluster, auto_offset_reset="earliest") as another:
            await another.seek_to_end()
            assert {another.position(one) for one in partitions} == {0}
        assert [after - count for after, count in zip(list_offsets_requests(cluster), before, strict=True)] == [2, 2]


async def test_retry_repeats_only_queries_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    ask = offset_lookup._ask

    async def asking(network: Any, leader: int, questions: Any, *more: Any) -> None:
        asked.append([one.partition_index for of_topic in questions.values() for one in of_topic])
        await ask(network, leader, questions, *more)

    monkeypatch.setattr(offset_lookup, "_ask", asking)
    async with cluster_and_admin(brokers=1) as (cluster, admin), reader(cluster) as consumer:
        await make_topic(admin, 3)
        partitions = [TopicPartition(TOPIC, index) for index in range(3)]
        cluster.faults.add(api="ListOffsets", partition=1, error="NOT_LEADER_OR_FOLLOWER", times=1)
        assert await consumer.end_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert asked == [[0, 1, 2], [1]]
        asked.clear()
        cluster.faults.add(api="ListOffsets", partition=0, error="TOPIC_AUTHORIZATION_FAILED")
        cluster.faults.add(api="ListOffsets", partition=2, error="NOT_LEADER_OR_FOLLOWER")
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await consumer.end_offsets(partitions)
        assert asked == [[0, 1, 2]], "a retry cannot mend it"


async def test_reset_by_duration_without_recent_records_does_not_wait_for_another_leader() -> None:
    """No record of partition 1 is recent, so a second query is necessary, while the first one of partition 0 fails."""
    async with cluster_and_admin(brokers=1) as (cluster, admin), reader(cluster) as consumer:
        await make_topic(admin, 2)
        await consumer.end_offsets(BOTH)
        cluster.faults.add(api="ListOffsets", partition=0, error="NOT_LEADER_OR_FOLLOWER")
        resets = OffsetResets("by_duration:PT1H", clock_ms=lambda: BEGAN_MS)
        starts, error = await resets.find_available(consumer._network, BOTH, set(), timeout_ms=0)
        assert starts == {BOTH[1]: 0} and error is not None


def list_offsets_requests(cluster: Cluster) -> list[int]:
    return [node.server.dispatcher.requests[LIST_OFFSETS] for node in cluster.nodes.values()]
