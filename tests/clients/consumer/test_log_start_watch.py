"""A partition with a full buffer behind a closed gate learns of deleted records without a fetch."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Consumer, Producer
from anabranch.clients.consumer import log_start_watch
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
