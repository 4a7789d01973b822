"""R16: producers without generations on a resized topic, by policy; their errors and log lines."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.handlers import generations
from anabranch.broker.replication import legacy_producers
from anabranch.broker.replication.legacy_producers import PAGE
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk.session import NodeExists
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.linear_hashing import address
from anabranch.protocol.records.batch import seal
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.message_set import Message, build_message
from tests.broker.handlers.test_produce import PRODUCER, resized
from tests.broker.replication.replica_cluster import (
    NOW_MS,
    ReplicaCluster,
    batch,
    log_values,
    produce_request,
    replica_cluster,
    until,
)

BASE, COUNT = 1, 5


async def configure(cluster: ReplicaCluster, **properties: str) -> None:
    """What is set for the topic."""
    config = {name.replace("_", "."): text for name, text in properties.items()}
    body = json.dumps({"version": 1, "config": config}).encode()
    try:
        await cluster.session.create("/config/topics/t", body, make_parents=True)
    except NodeExists:
        await cluster.session.set("/config/topics/t", body)
    await cluster[1].services.topic_configs.load("t", again=True)


async def grown(cluster: ReplicaCluster, *, published: bool = True, **more: Any) -> None:
    """The topic went from two partitions to five, which cut partition 0."""
    if published:
        from anabranch.protocol.apis.common_structs import ReshardStep

        steps = [ReshardStep(generation=0, count=2), ReshardStep(generation=1, count=COUNT)]
        cluster.published["t"] = {"generation": 1, "base": BASE, "history": steps}
    await cluster.lead(1, **resized(**more))


def keys_of(partition: int, wanted: int = 3) -> list[bytes]:
    """Keys that belong to a partition of the grown topic."""
    keys = (b"key-%d" % number for number in range(1000))
    return [key for key in keys if address(murmur2(key), BASE, COUNT) == partition][:wanted]


def batch_of(keys: list[bytes | None], compression: str = "none") -> bytes:
    builder = BatchBuilder(compression, limit_bytes=1 << 22)
    for key in keys:
        builder.append(key, b"value", timestamp_ms=NOW_MS)
    return builder.build()


def sealed(body: bytes) -> bytes:
    """A batch with a right checksum, whatever is inside."""
    changed = bytearray(body)
    seal(memoryview(changed), 0, len(changed))
    return bytes(changed)


# auto: until somebody asks for order


async def test_topic_written_by_stock_producers_only_accepts_their_batches_after_a_resize() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, batch("a"))).error_code == 0
        await grown(cluster)
        assert (await cluster.produce(1, batch("b"))).error_code == 0
        assert log_values(cluster.partition(1)) == ["a", "b"]
        assert not cluster.proposals, "and nobody is asked anything"


async def test_first_batch_with_a_generation_refuses_stock_producers() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        assert (await cluster.produce(1, batch("a"))).error_code == 0
        assert (await cluster.produce(1, batch("b"), generation=1)).error_code == 0
        assert cluster.has_generations == {"t"}
        refused = await cluster.produce(1, batch("c"))
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "reshard.legacy.producers=verify" in (refused.error_message or "")
        assert "reshard.legacy.producers=allow" in (refused.error_message or "")
        assert (refused.error_message or "").endswith(f": {PAGE}")
        assert log_values(cluster.partition(1)) == ["a", "b"]


@pytest.mark.parametrize("heard_of", ["LeaderAndIsr", "UpdateMetadata"])
async def test_leader_informed_by_the_controller_sends_no_proposal(heard_of: str) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        cluster.has_generations = {"t"}
        if heard_of == "LeaderAndIsr":
            cluster.assigned["t", 0].leader_epoch += 1
            await cluster.tell("t", 0)
        else:
            await cluster.publish()
        assert (await cluster.produce(1, batch("a"))).error_code == ErrorCode.POLICY_VIOLATION
        assert (await cluster.produce(1, batch("b"), generation=1)).error_code == 0
        assert not cluster.proposals


async def test_generations_of_a_deleted_topic_do_not_apply_to_its_successor() -> None:
    async with replica_cluster(1) as cluster:
        cluster.has_generations = {"t"}
        await cluster.lead(1, replicas=(1,))
        partition = cluster.partition(1)
        assert cluster[1].replicas.with_generations.is_known(partition)
        partition.has_generations, partition.topic_id = False, b"another topic id"
        assert not cluster[1].replicas.with_generations.is_known(partition)


async def test_resizes_of_a_deleted_topic_do_not_apply_to_its_successor() -> None:
    async with replica_cluster(1, reshard_legacy_producers="refuse") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster, generation=0, gen_start=((0, 0),))
        assert (await cluster.produce(1, batch("a"))).error_code == ErrorCode.POLICY_VIOLATION
        cluster.partition(1).topic_id = b"another topic id"  # and UpdateMetadata has not told of it yet
        assert (await cluster.produce(1, batch("b"))).error_code == 0


async def test_unchanged_partition_of_a_resized_topic_refuses_stock_producers() -> None:
    """A stock producer hashes all keys with the new count, also those of unchanged partitions."""
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await configure(cluster, reshard_legacy_producers="refuse")
        await grown(cluster, generation=0, gen_start=((0, 0),))
        assert cluster.partition(1).generation == 0
        assert (await cluster.produce(1, batch("a"))).error_code == ErrorCode.POLICY_VIOLATION
        assert (await cluster.produce(1, batch("b"), generation=0)).error_code == 0


@pytest.mark.parametrize(
    ("properties", "accepted"),
    [
        ({"reshard_legacy_producers": "refuse"}, False),
        ({"reshard_legacy_producers": "allow"}, True),
        ({"enable_ordered_delivery": "true"}, False),
        ({"enable_ordered_delivery": "false"}, True),
        ({"enable_ordered_delivery": "true", "reshard_legacy_producers": "allow"}, True),
        ({"enable_ordered_delivery": "false", "reshard_legacy_producers": "refuse"}, False),
    ],
)
@pytest.mark.parametrize("has_generations", [False, True])
async def test_topic_config_decides_about_stock_producers(
    properties: dict[str, str], accepted: bool, has_generations: bool
) -> None:
    async with replica_cluster(1) as cluster:
        cluster.has_generations = {"t"} if has_generations else set()
        await cluster.lead(1, replicas=(1,))
        await configure(cluster, **properties)
        assert (await cluster.produce(1, batch("a"))).error_code == 0, "before any resize nothing is refused"
        await grown(cluster)
        row = await cluster.produce(1, batch("b"))
        assert row.error_code == (ErrorCode.NONE if accepted else ErrorCode.POLICY_VIOLATION)


@pytest.mark.parametrize(("policy", "accepted"), [("auto", True), ("refuse", False), ("allow", True)])
async def test_broker_default_applies_to_all_topics(policy: str, accepted: bool) -> None:
    async with replica_cluster(1, reshard_legacy_producers=policy) as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        row = await cluster.produce(1, batch("b"))
        assert row.error_code == (ErrorCode.NONE if accepted else ErrorCode.POLICY_VIOLATION)


@pytest.mark.parametrize("policy", ["auto", "allow", "verify"])
async def test_retired_partition_refuses_stock_producers_under_every_policy(policy: str) -> None:
    async with replica_cluster(1, reshard_legacy_producers=policy) as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster, sealed=True)
        refused = await cluster.produce(1, batch_of([None]))
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "reshard.legacy.producers" in (refused.error_message or "") and PAGE in (refused.error_message or "")


@pytest.mark.parametrize("policy", ["auto", "verify"])
async def test_error_message_in_a_stock_client_names_the_property_and_its_page(policy: str) -> None:
    """With kafka-python, which shows texts as Kafka's own client does: that of the record, else that of the batch."""
    kafka = pytest.importorskip("kafka")
    async with Cluster(1) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            configs = {"reshard.legacy.producers": policy}
            await admin.create_topics([NewTopic(name="t", partitions=2, configs=configs)])
            async with Producer(cluster.bootstrap_servers) as producer:
                await (await producer.send("t", b"value", b"key"))
            await admin.create_partitions("t", 3)

        def produce() -> str:
            producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            try:
                elsewhere = next(key for key in map(b"%d".__mod__, range(100)) if address(murmur2(key), BASE, 3) == 1)
                with pytest.raises(kafka.errors.KafkaError) as refused:
                    producer.send("t", b"value", elsewhere, partition=0).get(60)
                return str(refused.value)
            finally:
                producer.close()

        shown = await asyncio.to_thread(produce)
    assert "reshard.legacy.producers=verify" in shown and PAGE in shown


# verify


async def test_batches_with_correctly_placed_keys_are_accepted() -> None:
    async with replica_cluster(1, reshard_legacy_producers="verify") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
            right = await cluster.produce(1, batch_of([*keys_of(0), None, b""], compression))
            # The empty key is a key like any other.
            assert (right.error_code == 0) is (address(murmur2(b""), BASE, COUNT) == 0)
            assert (await cluster.produce(1, batch_of([*keys_of(0), None], compression))).error_code == 0
        wrong = await cluster.produce(1, batch_of([keys_of(0)[0], keys_of(4)[0], None, keys_of(2)[0]]))
        assert wrong.error_code == ErrorCode.POLICY_VIOLATION
        assert [one.batch_index for one in wrong.record_errors] == [1, 3]
        assert [one.batch_index_error_message for one in wrong.record_errors] == [
            f"its key belongs to partition {home} of t; reshard.legacy.producers=verify refuses it: {PAGE}"
            for home in (4, 2)
        ]
        assert "record 1 with a key of partition 4" in (wrong.error_message or "")
        assert "5 partitions of base 1" in (wrong.error_message or "")
        assert f"reshard.legacy.producers=verify refuses them: {PAGE}" in (wrong.error_message or "")


async def test_keys_are_not_checked_before_a_resize() -> None:
    async with replica_cluster(1, reshard_legacy_producers="verify") as cluster:
        await cluster.lead(1, replicas=(1,))
        assert (await cluster.produce(1, batch_of([*keys_of(1), *keys_of(4)]))).error_code == 0


async def test_batch_during_a_resize_is_retriable() -> None:
    """The leader serves an unpublished generation, so the key's partition is unknown."""
    async with replica_cluster(1, reshard_legacy_producers="verify") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster, published=False)
        row = await cluster.produce(1, batch_of(keys_of(0)))
        assert ErrorCode(row.error_code).retriable and row.error_code != ErrorCode.POLICY_VIOLATION
        await grown(cluster)
        assert (await cluster.produce(1, batch_of(keys_of(0)))).error_code == 0


async def test_resize_between_check_and_append_refuses_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica_cluster(1, reshard_legacy_producers="verify") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        look = generations.check_keys

        async def and_then_a_resize(*arguments: Any) -> Any:
            found = await look(*arguments)
            cluster.published["t"]["generation"] = 2
            await cluster.lead(1, **resized(generation=2, gen_start=((0, 0), (1, 1), (2, 3))))
            return found

        monkeypatch.setattr(generations, "check_keys", and_then_a_resize)
        row = await cluster.produce(1, batch_of(keys_of(0)))
        assert ErrorCode(row.error_code).retriable
        assert log_values(cluster.partition(1)) == []


async def test_duplicate_is_acknowledged_despite_a_misplaced_key() -> None:
    """R5 (i) holds for stock producers, too."""
    async with replica_cluster(1, reshard_legacy_producers="verify") as cluster:
        await cluster.lead(1, replicas=(1,))
        builder = BatchBuilder()
        builder.append(keys_of(4)[0], b"a", timestamp_ms=NOW_MS)
        sent = builder.build(*PRODUCER, 0)
        first = await cluster.produce(1, sent)
        await grown(cluster)
        again = await cluster.produce(1, sent)
        assert (again.error_code, again.base_offset) == (0, first.base_offset)


async def test_keys_of_message_sets_are_checked() -> None:
    async with replica_cluster(1, reshard_legacy_producers="verify") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        for magic in (0, 1):
            timestamp = NOW_MS if magic else -1
            right = build_message(Message(0, magic, 0, timestamp, keys_of(0)[0], b"value"))
            wrong = build_message(Message(0, magic, 0, timestamp, keys_of(3)[0], b"value"))
            assert (await cluster.produce(1, right, version=2)).error_code == 0
            assert (await cluster.produce(1, wrong, version=2)).error_code == ErrorCode.POLICY_VIOLATION
        assert log_values(cluster.partition(1)) == ["value", "value"]


async def test_malformed_batch_has_its_own_error_code() -> None:
    async with replica_cluster(1, reshard_legacy_producers="verify") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        whole, plain = batch_of(keys_of(0), "zstd"), batch_of(keys_of(0))
        for body, code in (
            (b"", ErrorCode.INVALID_RECORD),
            (bytes(70), ErrorCode.CORRUPT_MESSAGE),
            (whole[:80], ErrorCode.INVALID_RECORD),
            (whole + whole, ErrorCode.INVALID_RECORD),
            (whole[:61] + b"\xff" * (len(whole) - 61), ErrorCode.CORRUPT_MESSAGE),
            (sealed(whole[:61] + b"\xff" * (len(whole) - 61)), ErrorCode.UNKNOWN_SERVER_ERROR),
            (sealed(plain[:61] + b"\x7f" + plain[62:]), ErrorCode.INVALID_RECORD),
            (sealed(plain[:57] + (2**31 - 1).to_bytes(4, "big") + plain[61:]), ErrorCode.INVALID_RECORD),
        ):
            row = await cluster.produce(1, body)
            assert row.error_code == code, (body[:70], row)
        assert log_values(cluster.partition(1)) == []


async def test_check_of_many_keys_yields_and_bounds_its_record_errors() -> None:
    async with replica_cluster(1, reshard_legacy_producers="verify") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        replicas = cluster[1].replicas
        image = replicas.legacy.verifies("t")
        assert image is not None
        data = produce_request(batch_of(keys_of(4, 1) * 50_000)).topic_data[0].partition_data[0]
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        fit = await generations.check_keys(replicas, image, data)
        other.cancel()
        assert turns >= 50_000 // legacy_producers.KEYS_AT_ONCE
        assert isinstance(fit.refusal, legacy_producers.LegacyRefused)
        assert ": 50000 records have keys of other partitions" in fit.refusal.message
        assert len(fit.refusal.record_errors) == generations.NAMED_MAX


@pytest.mark.parametrize(("base", "count"), [(1, 1), (1, 5), (3, 3), (3, 7), (5, 40), (1, 64), (7, 100)])
def test_table_of_key_placement_equals_linear_hashing(base: int, count: int) -> None:
    places = legacy_producers.partitions_of_key(base, count)
    for number in range(2000):
        key_hash = murmur2(b"%d" % number)
        assert places[key_hash % len(places)] == address(key_hash, base, count)


# what stands in the log


async def test_refused_stock_producer_is_logged_once_with_the_config(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replica_cluster(1, reshard_legacy_producers="refuse") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        with caplog.at_level(logging.WARNING, logger="anabranch.broker"):
            for _ in range(3):
                await cluster.produce(1, batch("a"))
        (line,) = [one.getMessage() for one in caplog.records]
        assert "refusing batches of test (127.0.0.1:" in line and "reshard.legacy.producers=allow" in line
        assert "acks=0" not in line


async def test_refused_acks_0_batch_closes_the_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replica_cluster(1, reshard_legacy_producers="refuse") as cluster:
        await cluster.lead(1, replicas=(1,))
        await grown(cluster)
        with caplog.at_level(logging.WARNING, logger="anabranch.broker"):
            connection = await cluster[1].connect()
            connection.send_oneway(produce_request(batch("a"), 0))
            await until(lambda: connection.closed)
        (line,) = [one.getMessage() for one in caplog.records]
        assert "with acks=0 the producer gets no error" in line
