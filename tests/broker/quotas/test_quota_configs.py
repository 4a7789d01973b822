"""Quotas in a cluster: set and described by a client, enforced by every broker without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.broker.config.config_changes import read_config
from anabranch.broker.quotas.quota_configs import CLIENT_ID, IP, USER, checked_limit, desanitize, limits_in, sanitize
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.apis.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, EntityData
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.wire import ZERO_UUID
from tests.broker.replication.replica_cluster import until

Entity = dict[str, str | None]
EXACT, OF_DEFAULT, ANY = range(3)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2) as cluster, asyncio.timeout(60):
        yield cluster


async def connect(cluster: Cluster, node_id: int = 1, client_id: str = "c") -> Connection:
    return await Connection.open("127.0.0.1", cluster.nodes[node_id].port, client_id=client_id)


def altering(entity: Entity, validate_only: bool = False, **limits: float | None) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[OpData(key=key, value=limit or 0.0, remove=limit is None) for key, limit in limits.items()],
            )
        ],
        validate_only=validate_only,
    )


async def alter(connection: Connection, entity: Entity, version: int = 1, **limits: float | None) -> ErrorCode:
    (row,) = (await connection.call(altering(entity, **limits), version=version)).entries
    assert {one.entity_type: one.entity_name for one in row.entity} == entity
    return ErrorCode(row.error_code)


async def describe(
    connection: Connection, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    rows = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    response = await connection.call(DescribeClientQuotasRequest(components=rows, strict=strict), version=version)
    if response.error_code:
        return ErrorCode(response.error_code)
    return [
        (
            {one.entity_type: one.entity_name for one in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in response.entries
    ]


async def until_limited(cluster: Cluster, limited: bool = True) -> None:
    """Every broker has heard of it."""
    throttlings = [node.services.throttling for node in cluster.nodes.values()]
    await until(lambda: all(one is not None and one.active == limited for one in throttlings))


async def test_altered_quotas_are_described() -> None:
    async with two_brokers() as cluster:
        connection = await connect(cluster)
        everybody: list[tuple[Entity, dict[str, float]]] = [
            ({USER: "ü/x"}, {"producer_byte_rate": 1024.0}),
            ({USER: None}, {"request_percentage": 50.5}),
            ({CLIENT_ID: "a"}, {"consumer_byte_rate": 7.0, "controller_mutation_rate": 1.5}),
            ({CLIENT_ID: None}, {"producer_byte_rate": 9.0}),
            ({USER: "ü/x", CLIENT_ID: "a"}, {"producer_byte_rate": 3.0}),
            ({USER: "ü/x", CLIENT_ID: None}, {"producer_byte_rate": 4.0}),
            ({IP: "127.0.0.1"}, {"connection_creation_rate": 10.0}),
        ]
        for version, (entity, limits) in enumerate(everybody):
            assert await alter(connection, entity, version=version % 2, **limits) is ErrorCode.NONE
        other = await connect(cluster, 2)

        def those(*indexes: int) -> list[Any]:
            return [everybody[index] for index in indexes]

        def by_text(rows: Any) -> list[str]:
            return sorted(map(repr, rows))

        for components, strict, expected in [
            ((), False, range(7)),
            ((), True, ()),
            (((USER, EXACT, "ü/x"),), False, (0, 4, 5)),
            (((USER, EXACT, "ü/x"),), True, (0,)),
            (((USER, OF_DEFAULT, None),), True, (1,)),
            (((USER, ANY, None),), True, (0, 1)),
            (((CLIENT_ID, ANY, None),), True, (2, 3)),
            (((CLIENT_ID, EXACT, "a"),), False, (2, 4)),
            (((USER, ANY, None), (CLIENT_ID, OF_DEFAULT, None)), True, (5,)),
            (((IP, ANY, None),), True, (6,)),
            (((USER, EXACT, "nobody"),), False, ()),
        ]:
            for version in (0, 1):
                found = await describe(other, *components, strict=strict, version=version)  # type: ignore[arg-type]
                assert by_text(found) == by_text(those(*expected)), (components, strict)
        assert await alter(connection, {USER: None}, request_percentage=None) is ErrorCode.NONE
        assert await describe(other, (USER, OF_DEFAULT, None), strict=True) == []
        config = await read_config(cluster.nodes[1].session, "users/%C3%BC%2Fx/clients/a")
        assert config == {"producer_byte_rate": "3"}, "as Kafka's own tools write it"
        for one in (connection, other):
            await one.close()


async def test_invalid_quota_requests_are_refused() -> None:
    async with two_brokers() as cluster:
        connection = await connect(cluster)
        wrong: list[tuple[Entity, dict[str, float | None]]] = [
            ({}, {"producer_byte_rate": 1.0}),
            ({"group": "g"}, {"producer_byte_rate": 1.0}),
            ({USER: ""}, {"producer_byte_rate": 1.0}),
            ({USER: "u", IP: "1.2.3.4"}, {"producer_byte_rate": 1.0}),
            ({IP: "nowhere"}, {"connection_creation_rate": 1.0}),
            ({IP: "1.2.3.4"}, {"producer_byte_rate": 1.0}),
            ({USER: "u"}, {"producer_byte_rate": 1.5}),
            ({USER: "u"}, {"producer_byte_rate": float("inf")}),
            ({USER: "u"}, {"speed": 1.0}),
        ]
        for entity, limits in wrong:
            assert await alter(connection, entity, **limits) is ErrorCode.INVALID_REQUEST, (entity, limits)
        response = await connection.call(altering({USER: "u"}, True, producer_byte_rate=1.0))
        assert response.entries[0].error_code == 0 and await describe(connection) == [], "only checked"
        for components, error in [
            ((("group", ANY, None),), ErrorCode.UNSUPPORTED_VERSION),
            ((("", ANY, None),), ErrorCode.INVALID_REQUEST),
            (((USER, ANY, None), (USER, ANY, None)), ErrorCode.INVALID_REQUEST),
            (((USER, ANY, None), (IP, ANY, None)), ErrorCode.INVALID_REQUEST),
            (((USER, 7, None),), ErrorCode.UNKNOWN_SERVER_ERROR),
            (((USER, EXACT, None),), ErrorCode.UNKNOWN_SERVER_ERROR),
        ]:
            assert await describe(connection, *components) is error  # type: ignore[arg-type]
        await connection.close()


def batch(size: int) -> bytes:
    builder = BatchBuilder()
    builder.append(None, bytes(size), timestamp_ms=0)
    return bytes(builder.build())


def produce(size: int, acks: int = 1) -> ProduceRequest:
    rows = [PartitionProduceData(index=0, records=batch(size))]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=rows)])


async def led(cluster: Cluster, connection: Connection) -> int:
    """A topic of one partition, and who leads it."""
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    for node in cluster.nodes:
        at = await connect(cluster, node)
        created = await at.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        await at.close()
        if created.topics[0].error_code == ErrorCode.NONE:
            break
    partition = (await connection.call(MetadataRequest(topics=None))).topics[0].partitions[0]
    return int(partition.leader_id)


async def test_producer_over_quota_is_throttled_and_its_connection_muted() -> None:
    async with two_brokers() as cluster:
        loop, admin = asyncio.get_running_loop(), await connect(cluster, client_id="admin")
        leader = await led(cluster, admin)
        mine, other = await connect(cluster, leader, "mine"), await connect(cluster, leader, "other")
        assert (await mine.call(produce(100_000))).throttle_time_ms == 0, "there is no limit yet"
        await alter(admin, {CLIENT_ID: "mine"}, producer_byte_rate=100_000.0)
        await until_limited(cluster)
        throttled = await mine.call(produce(1_020_000))
        assert 100 < throttled.throttle_time_ms < 600
        assert throttled.responses[0].partition_responses[0].error_code == 0, "answered at once, and stored"
        began_s = loop.time()
        metadata = asyncio.ensure_future(mine.call(MetadataRequest(topics=None)))
        assert (await other.call(produce(1_020_000))).throttle_time_ms == 0
        await other.call(MetadataRequest(topics=None))
        assert not metadata.done(), "the connection is muted, another client's is not"
        await metadata
        assert loop.time() - began_s > throttled.throttle_time_ms / 1000 - 0.1
        await alter(admin, {CLIENT_ID: "mine"}, producer_byte_rate=None)
        await until_limited(cluster, False)
        assert (await mine.call(produce(1_000_000))).throttle_time_ms == 0, "as soon as the limit is gone"
        for one in (admin, mine, other):
            await one.close()


async def test_consumer_over_quota_gets_empty_responses_until_it_has_waited() -> None:
    async with two_brokers() as cluster:
        admin = await connect(cluster, client_id="admin")
        leader = await led(cluster, admin)
        mine = await connect(cluster, leader, "mine")
        await mine.call(produce(500_000))
        await mine.call(produce(500_000))
        await alter(admin, {USER: None}, consumer_byte_rate=60_000.0)
        await until_limited(cluster)
        topic_id = cluster.nodes[leader].services.metadata.topic_id("t")
        rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2_000_000)]
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=rows)])
        first = await mine.call(fetch)
        assert first.throttle_time_ms == 0
        size = len(first.responses[0].partitions[0].records)
        assert 500_000 < size <= 600_000, "no more than the burst that is allowed, however much was asked for"
        second = await mine.call(fetch)
        assert second.throttle_time_ms > 0 and second.responses == [] and second.error_code == 0
        for one in (admin, mine):
            await one.close()


async def test_client_over_request_quota_is_throttled() -> None:
    async with two_brokers() as cluster:
        admin, mine = await connect(cluster, client_id="admin"), await connect(cluster, client_id="mine")
        await alter(admin, {CLIENT_ID: "mine"}, request_percentage=0.0001)
        await until_limited(cluster)
        waits = [(await mine.call(MetadataRequest(topics=None))).throttle_time_ms for _ in range(2)]
        assert max(waits) > 0 and max(waits) <= 1000, "never longer than a window"
        assert (await admin.call(MetadataRequest(topics=None))).throttle_time_ms == 0
        for one in (admin, mine):
            await one.close()


def creating(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


async def test_controller_mutations_are_throttled() -> None:
    async with two_brokers() as cluster:
        (active,) = (n for n, node in cluster.nodes.items() if node.controller is not None and node.controller.active)
        mine = await connect(cluster, active, "mine")
        await alter(mine, {CLIENT_ID: "mine"}, controller_mutation_rate=0.1)
        await until_limited(cluster)
        first = await mine.call(creating("a", 30))
        assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0), "a burst may go below zero"
        exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        for request, version in [
            (creating("b", 1), 7),
            (DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=ZERO_UUID)], timeout_ms=60_000), 6),
            (growing("a", 31), 3),
        ]:
            at = await connect(cluster, active, "mine")  # the other connections are muted
            answer = await at.call(request, version=version)
            (row,) = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
            assert ErrorCode(row.error_code) is exceeded
            assert 200_000 < answer.throttle_time_ms <= 300_000
            await at.close()
        old = await connect(cluster, active, "mine")
        answer = await old.call(creating("c", 1), version=5)
        assert answer.topics[0].error_code == 0 and answer.throttle_time_ms > 200_000, "older clients only wait"
        other = await connect(cluster, active, "other")
        assert (await other.call(creating("d", 50))).topics[0].error_code == 0
        for one in (mine, old, other):
            await one.close()


def growing(name: str, count: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=60_000, validate_only=False)


@pytest.mark.parametrize("name", ["", "a", "a b", "ü/*+~", None])
def test_entity_names_are_sanitized_as_by_kafka(name: str | None) -> None:
    node = sanitize(name)
    assert desanitize(node) == name and not set(node) & set("/*+ ")


def test_quota_that_is_not_a_number_is_refused_or_ignored() -> None:
    known = frozenset({"controller_mutation_rate"})
    with pytest.raises(KafkaError, match="must be a number"):
        checked_limit("controller_mutation_rate", float("nan"), known)
    assert limits_in({"controller_mutation_rate": "NaN"}, known) == {}
