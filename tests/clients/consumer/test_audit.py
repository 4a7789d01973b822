"""What is written down of each delivery, when, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import random

import pytest

from anabranch.cluster import Cluster
from clients import Admin, Consumer, Producer
from clients.consumer.audit import DeliveryAudit
from clients.consumer.delivery import ConsumerRecord
from clients.consumer.session import GroupSession
from protocol import audit
from tests.clients.consumer.groups import TOPIC, against_a_cluster, make_topic, send


async def events_of(cluster: Cluster, count: int) -> list[audit.Delivery]:
    found: list[audit.Delivery] = []
    async with Consumer(
        "deliveries", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=2000)).values():
                found += [audit.decode_delivery(record.value or b"") for record in records]
    return found


def test_each_delivery_is_told_and_stored_before_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = GroupSession.commit
    unsettled: list[int] = []

    async def watched(self: GroupSession, offsets: object) -> None:
        assert consumer._audit is not None
        unsettled.append(consumer._audit._producer._accumulator.outstanding)
        await commit(self, offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(GroupSession, "commit", watched)
    consumer: Consumer

    async def story(cluster: Cluster, admin: Admin) -> None:
        nonlocal consumer
        await make_topic(admin, 2)
        await make_topic(admin, 2, name="deliveries")
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 50)
        async with Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1,
            audit="deliveries",
            clock_ms=lambda: 42,
        ) as consumer:
            count = 0
            while count < 50:
                batch = await consumer.getmany(timeout_ms=1000, max_records=7)
                count += sum(len(records) for records in batch.values())
        events = await events_of(cluster, 50)
        assert len({(one.partition, one.offset) for one in events}) == 50
        assert {(one.group, one.topic, one.generation, one.time_ms) for one in events} == {("g", TOPIC, 0, 42)}
        assert {one.sequence for one in events} == {0, 1, 2, 3, 4}

    against_a_cluster(story, brokers=1)
    assert len(unsettled) > 1
    assert set(unsettled) == {0}


def test_a_hole_in_the_audit_is_an_error_for_ever() -> None:
    async def story(cluster: Cluster, admin: Admin) -> None:
        await make_topic(admin, 1, name="deliveries", max_message_bytes="100")
        producer = Producer(cluster.bootstrap_servers)
        writer = DeliveryAudit(producer, "deliveries", group="g", rng=random.Random(1))
        await writer.start()
        record = ConsumerRecord("t", 0, 0, 0, b"k" * 200, None, (), 0)
        await writer.write([record], member="m", now_ms=0)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="missing in the audit 'deliveries'"):
                await writer.flush()
        await writer.stop()
        await asyncio.sleep(0)

    against_a_cluster(story, brokers=1)
