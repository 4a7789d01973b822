"""Audit events of deliveries: content, time, and failed writes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from anabranch import Consumer, Producer
from anabranch.clients.consumer import delivery_audit as written
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.consumer.delivery_audit import DeliveryAudit
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.security import SecurityArguments
from anabranch.cluster.in_process import Cluster
from anabranch.protocol import audit
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import murmur2
from tests.clients.consumer.groups import TOPIC, cluster_and_admin, make_topic, send, throw_out
from tests.secured.certificates import plain_users

OWNER = ConsumerGroupMetadata("g", 3, "m")


def writer_of(producer: Producer) -> DeliveryAudit:
    return DeliveryAudit(producer, "deliveries", group="g", rng=random.Random(1))


def record_of(key: bytes, offset: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, key, None, (), 0)


async def events_of(cluster: Cluster, count: int) -> list[audit.Delivery]:
    found: list[audit.Delivery] = []
    async with Consumer(
        "deliveries", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=60_000)).values():
                found += [one for record in records for one in audit.decode_events(record.value or b"", record.key)]
    return found


async def test_each_delivery_is_stored_in_audit_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = ClassicGroupSession.commit
    unsettled: list[int] = []

    async def watched(self: ClassicGroupSession, *arguments: Any) -> None:
        assert consumer._audit is not None
        unsettled.append(consumer._audit._runs.waiting + consumer._audit._producer._accumulator.outstanding)
        await commit(self, *arguments)

    monkeypatch.setattr(ClassicGroupSession, "commit", watched)
    consumer: Consumer
    async with cluster_and_admin(brokers=1) as (cluster, admin):
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
                batch = await consumer.getmany(timeout_ms=60_000, max_records=7)
                count += sum(len(records) for records in batch.values())
        events = await events_of(cluster, 50)
        assert len({(one.partition, one.offset) for one in events}) == 50
        assert {(one.group, one.topic, one.generation, one.time_ms) for one in events} == {("g", TOPIC, 0, 42)}
        assert {one.sequence for one in events} == {0, 1, 2, 3, 4}
        owner = consumer.group_metadata()
        assert {(one.member, one.group_generation) for one in events} == {(owner.member_id, owner.generation_id)}
        assert {audit.bucket_of(one.key_hash) for one in events} == {
            audit.bucket_of(murmur2(one.key or b"")) for one in events
        }
    assert len(unsettled) > 1
    assert set(unsettled) == {0}


async def test_lost_audit_event_is_a_permanent_error() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, name="deliveries", max_message_bytes="100")
        writer = writer_of(Producer(cluster.bootstrap_servers))
        await writer.start()
        writer.note([record_of(b"k" * 200)], owner=OWNER, now_ms=0, begin_number=0)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="missing in the audit topic 'deliveries'"):
                await writer.flush()
        await writer.stop()
        await asyncio.sleep(0)


async def test_unflushed_events_are_sent_after_linger() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, name="deliveries")
        writer = writer_of(Producer(cluster.bootstrap_servers))
        await writer.start()
        for offset in range(3):
            writer.note([record_of(b"k", offset)], owner=OWNER, now_ms=0, begin_number=0)
            assert [one.offset for one in await events_of(cluster, offset + 1)] == list(range(offset + 1))
        await writer.stop()


async def test_full_event_buffer_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, name="deliveries")
        monkeypatch.setattr(written, "EVENTS_MAX", 10)
        monkeypatch.setattr(written, "LINGER_S", 3600)
        writer = writer_of(Producer(cluster.bootstrap_servers))
        await writer.start()
        for offset in range(9):
            writer.note([record_of(b"k", offset)], owner=OWNER, now_ms=0, begin_number=0)
        assert writer._runs.waiting == 9
        await writer.make_room()
        assert writer._runs.waiting == 9, "there is room"
        writer.note([record_of(b"k", 9)], owner=OWNER, now_ms=0, begin_number=0)
        assert [one.number for one in await events_of(cluster, 10)] == list(range(10))
        for offset in range(10, 20):
            writer.note([record_of(b"k", offset)], owner=OWNER, now_ms=0, begin_number=0)
        await writer.make_room()
        assert writer._runs.waiting == 0
        await writer.stop()


async def test_consumer_that_cannot_start_leaves_no_audit_running() -> None:
    async with cluster_and_admin(brokers=1, offsets_topic_replication_factor="3") as (cluster, _):
        consumer = Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            group_protocol="consumer",
            request_timeout_ms=100,
            audit="deliveries",
        )
        with pytest.raises(KafkaError) as refused:
            await consumer.start()
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "delivery audit" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_events_cover_only_records_that_member_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member is replaced while it waits for space in the audit; it reports only what it still owns."""
    monkeypatch.setattr(written, "EVENTS_MAX", 5)
    async with cluster_and_admin(brokers=1, auto_create_topics_enable="false") as (cluster, admin):
        await make_topic(admin, 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            await send(producer, admin, 10)
        async with Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=20,
            max_poll_records=5,
            audit="deliveries",
        ) as consumer:
            given: list[tuple[int, int]] = []

            async def take() -> None:
                for records in (await consumer.getmany(timeout_ms=60_000)).values():
                    assert consumer._session is not None
                    assert not consumer._session.membership.lost, "it is the owner of what it hands out"
                    owner = consumer.group_metadata()
                    given.extend((owner.generation_id, record.offset) for record in records)

            taking = asyncio.create_task(take())
            while consumer._audit is None or not consumer._audit._unsent:  # noqa: ASYNC110 -- nobody announces it
                await asyncio.sleep(0.001)
            assert consumer._session is not None
            await throw_out(consumer._network, "g", consumer._session.membership.member_id)
            while not consumer._session.membership.lost:  # noqa: ASYNC110 -- a state that nobody announces
                await asyncio.sleep(0.001)
            await make_topic(admin, 1, name="deliveries")
            await taking
            while len(given) < 15:
                await take()
            await consumer.flush_audit()
        events = [(one.group_generation, one.offset) for one in await events_of(cluster, 15)]
        assert sorted(events) == sorted(given)


async def test_cancelled_audit_writer_leaves_events_for_next_flush() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        producer = Producer(cluster.bootstrap_servers)
        writer = writer_of(producer)
        await writer.start()
        writer.note([record_of(b"k")], owner=OWNER, now_ms=0, begin_number=0)
        # The topic does not exist yet, so that nothing can be sent.
        flushing = asyncio.create_task(writer.flush())
        while not writer._unsent:  # noqa: ASYNC110 -- a state that nobody announces
            await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.wait([flushing])
        writer.note([record_of(b"k", 1)], owner=OWNER, now_ms=0, begin_number=0)
        await make_topic(admin, 1, name="deliveries")
        await writer.flush()
        await writer.stop()
        found = await events_of(cluster, 2)
        assert [(one.offset, one.number) for one in found] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_delivered_records_are_in_audit_before_rebalance(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "LINGER_S", 3600)
    join = ClassicGroupSession.join
    unsettled: list[int] = []

    async def watched(self: ClassicGroupSession) -> object:
        assert consumer._audit is not None
        unsettled.append(consumer._audit._runs.waiting + consumer._audit._producer._accumulator.outstanding)
        return await join(self)

    monkeypatch.setattr(ClassicGroupSession, "join", watched)
    consumer: Consumer
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        await make_topic(admin, 1, name="deliveries")
        async with Producer(cluster.bootstrap_servers) as producer:
            await send(producer, admin, 10)
        async with Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=strategy,
            audit="deliveries",
        ) as consumer:
            while not await consumer.getmany(timeout_ms=60_000, max_records=5):
                pass
            assert consumer._audit is not None
            assert consumer._audit._runs.waiting == 5
            consumer.enforce_rebalance()
            while len(unsettled) < 2:
                await consumer.getmany(timeout_ms=100, max_records=0)
    assert unsettled == [0, 0]


async def test_application_with_own_commits_can_flush_audit_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "LINGER_S", 3600)
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        await make_topic(admin, 1, name="deliveries")
        async with Producer(cluster.bootstrap_servers) as producer:
            await send(producer, admin, 10)
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with (
            Consumer(TOPIC, group_id="g", audit="deliveries", **settings) as consumer,  # type: ignore[arg-type]
            Consumer(TOPIC, group_id="h", **settings) as unaudited,  # type: ignore[arg-type]
        ):
            while not await consumer.getmany(timeout_ms=60_000, max_records=5):
                pass
            await consumer.flush_audit()
            assert sorted([one.offset for one in await events_of(cluster, 5)]) == list(range(5))
            await unaudited.flush_audit()
            assert unaudited.group_metadata().before_commit is None


async def test_audit_writer_uses_consumer_credentials() -> None:
    listener = "SASL_PLAINTEXT"
    alice: SecurityArguments = {
        "security_protocol": listener,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "wonder",
    }
    users = plain_users(listener, admin="a", alice="wonder")
    async with Cluster(1, listeners=[f"{listener}://127.0.0.1:0"], properties=users) as cluster:
        servers = cluster.bootstrap_servers
        async with Producer(servers, **alice) as producer:
            await producer.send_and_wait(TOPIC, b"value", key=b"key")
        async with Consumer(
            TOPIC, bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", audit="deliveries", **alice
        ) as consumer:
            await consumer.getone()
            await consumer.commit()
        async with Consumer("deliveries", bootstrap_servers=servers, auto_offset_reset="earliest", **alice) as consumer:
            assert (await consumer.getone()).topic == "deliveries"
