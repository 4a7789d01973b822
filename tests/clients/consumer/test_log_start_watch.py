"""A partition with a full buffer behind a closed gate learns of deleted records without a fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from anabranch import Consumer, Producer, TopicPartition
from anabranch.clients.consumer import log_start_watch
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.offset_lookup import OffsetAndTimestamp
from anabranch.clients.network import Network
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.consumer.groups import GROUP, TOPIC
from tests.clients.consumer.test_deleted_heads import FIRST, SECOND, split_and_merged_topic


async def test_full_buffer_behind_closed_gate_is_dropped_when_its_records_are_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_start_watch, "INTERVAL_S", 0.1)
    async with split_and_merged_topic() as (cluster, admin):
        async with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(20):
                await producer.send_and_wait(TOPIC, bytes(64 * 1024), b"k")
        async with (
            asyncio.timeout(60),
            Consumer(
                TOPIC,
                group_id=GROUP,
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
        ):
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            consumer.pause(SECOND)
            while consumer._core.deliveries.stalled_partitions() != [FIRST]:
                await consumer.getmany(timeout_ms=100)
                await consumer.commit()
            end = (await consumer.end_offsets([FIRST]))[FIRST]
            await admin.delete_records({FIRST: end - 15})
            while await consumer.committed(FIRST) != end - 15:
                await consumer.getmany(timeout_ms=100)
            assert consumer.position(FIRST) == end - 15


class StalledCore:
    """Two partitions wait behind closed gates."""

    def __init__(self) -> None:
        self.starts: dict[TopicPartition, int] = {}
        self.deliveries = self

    def stalled_partitions(self) -> list[TopicPartition]:
        return [FIRST, SECOND]

    def note_log_start(self, partition: TopicPartition, offset: int) -> None:
        self.starts[partition] = offset


@pytest.mark.parametrize("hangs", [True, False])
async def test_partition_without_a_leader_hides_no_log_start_of_another(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(
        network: Any, timestamps: Mapping[TopicPartition, int], isolation_level: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        if SECOND in timestamps:
            await asyncio.sleep(3600 if hangs else 0)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a merge has removed it")
        return {FIRST: OffsetAndTimestamp(7, -1)}

    monkeypatch.setattr(log_start_watch, "find_offsets", find)
    monkeypatch.setattr(log_start_watch, "INTERVAL_S", 0)
    core, wakeup = StalledCore(), asyncio.Event()
    watch = log_start_watch.LogStartWatch(cast(Network, None), cast(ConsumerCore, core), wakeup)
    watch.schedule()
    async with asyncio.timeout(30):
        await wakeup.wait()
    await watch.close()
    assert core.starts == {FIRST: 7}
