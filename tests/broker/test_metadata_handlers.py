"""Responses from a given image: Metadata, DescribeCluster, lineage epochs, coordinators, settings."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.broker.administration import topic_creation
from anabranch.broker.administration.mutation_charge import MutationCharge
from anabranch.broker.authorization.peer import UNKNOWN_PEER
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.dispatch.request_context import CloseConnection, RequestContext
from anabranch.broker.dispatch.services import Services
from anabranch.broker.handlers import metadata as metadata_module
from anabranch.broker.handlers.describe_cluster import describe_cluster
from anabranch.broker.handlers.describe_configs import describe_configs
from anabranch.broker.handlers.describe_topic_partitions import describe_topic_partitions
from anabranch.broker.handlers.find_coordinator import find_coordinator
from anabranch.broker.handlers.init_producer_id import init_producer_id
from anabranch.broker.handlers.metadata import metadata
from anabranch.broker.handlers.partition_leader_epochs_for_partitions import epochs_of
from anabranch.broker.handlers.update_metadata import update_metadata
from anabranch.broker.metadata.metadata_cache import BrokerImage, ClusterImage, PartitionImage, TopicImage
from anabranch.broker.quotas.client_quotas import DEFAULT
from anabranch.broker.quotas.controller_mutation_quotas import MUTATIONS
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol import codec
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from anabranch.protocol.apis.update_metadata import UpdateMetadataBroker, UpdateMetadataRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.hashing import partition_of_group
from tests.broker.node.test_assembly import assembled
from tests.broker.serving import lone_services

ID = bytes([7]) * 16


def partition(index: int, leader: int, **fields: Any) -> PartitionImage:
    return PartitionImage(
        index=index,
        leader=leader,
        leader_epoch=4,
        isr=(1, 9),
        replicas=(1, 2, 9),
        offline_replicas=(),
        partition_epoch=7 + index,
        **fields,
    )


TOPICS = {
    "t": TopicImage(
        "t",
        ID,
        {0: partition(0, 1, gen_start=((0, 0), (2, 3)), generation=2), 1: partition(1, 9), 2: partition(2, -1)},
        generation=2,
        history=((0, 2), (2, 3)),
        base=2,
        ordered_delivery=True,
        min_insync_replicas=2,
        initial_partition_count=2,
        undeleted_partition_count=3,
    ),
    "__consumer_offsets": TopicImage("__consumer_offsets", bytes(16), {n: partition(n, 2 if n else 9) for n in (0, 1)}),
}
IMAGE = ClusterImage(
    brokers={
        n: BrokerImage(n, f"host-{n}", 9000 + n, "r" if n == 1 else None, n, {"PLAINTEXT": (f"host-{n}", 9000 + n)})
        for n in (1, 2)
    },
    topics=TOPICS,
    names={ID: "t"},
    controller_id=2,
)
SETTINGS = BrokerSettings(port=0, auto_create_topics_enable=False)


async def ask(handler: Callable[..., Any], request: Any, version: int, image: ClusterImage = IMAGE) -> Any:
    """Call a handler on a broker with this image, and make sure the answer can be sent."""
    services = await lone_services(SETTINGS)
    services.metadata.image = image
    response = await handler(context(services, version), request)
    codec.encode(response, version)
    return response


def context(services: Services, version: int) -> RequestContext:
    return RequestContext(services, version, "test", UNKNOWN_PEER)


def names(*topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])


async def test_null_topics_return_all_and_empty_topics_none() -> None:
    everything = await ask(metadata, MetadataRequest(topics=None), 12)
    assert {topic.name: topic.is_internal for topic in everything.topics} == {"t": False, "__consumer_offsets": True}
    assert [(one.node_id, one.host, one.port, one.rack) for one in everything.brokers] == [
        (1, "host-1", 9001, "r"),
        (2, "host-2", 9002, None),
    ]
    assert (everything.controller_id, everything.cluster_id) == (2, "test-cluster")
    assert everything.max_partition_epoch == -1, "a tagged field of ours, for clients that ask"
    aware = await ask(metadata, MetadataRequest(topics=None, generation_aware=True), 12)
    assert aware.max_partition_epoch == 9
    assert (await ask(metadata, MetadataRequest(topics=[]), 1)).topics == []
    assert len((await ask(metadata, MetadataRequest(topics=[]), 0)).topics) == 2


CREATING = BrokerSettings(port=0, auto_create_topics_enable=True)


WITHOUT_BROKERS = [
    (metadata, names("t"), 12),
    (metadata, MetadataRequest(topics=None), 12),
    (describe_cluster, DescribeClusterRequest(include_cluster_authorized_operations=False), 1),
    (describe_topic_partitions, DescribeTopicPartitionsRequest(topics=[]), 0),
]


@pytest.mark.parametrize(("handler", "request_", "version"), WITHOUT_BROKERS)
async def test_broker_without_metadata_ends_the_connection(
    handler: Callable[..., Any], request_: Any, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka drops every broker that a response does not have, and may never connect again."""
    monkeypatch.setattr(metadata_module, "BROKERS_WAIT_MS", 1)
    with pytest.raises(CloseConnection):
        await ask(handler, request_, version, ClusterImage())


async def test_metadata_request_waits_for_the_first_metadata() -> None:
    services = await lone_services(CREATING)
    waiting = asyncio.create_task(metadata(context(services, 12), names("t", "no/topic")))
    await asyncio.sleep(0)
    assert not waiting.done()
    live = [UpdateMetadataBroker(id=1, v0_host="host-1", v0_port=9001)]
    services.metadata.apply(UpdateMetadataRequest(controller_id=2, controller_epoch=1, live_brokers=live))
    response = await waiting
    assert [broker.host for broker in response.brokers] == ["host-1"]


async def test_topic_that_cannot_be_placed_is_refused_as_in_kafka() -> None:
    services = await lone_services(dataclasses.replace(CREATING, default_replication_factor=3))
    services.metadata.image = ClusterImage(brokers=IMAGE.brokers, controller_id=2)
    (row,) = (await metadata(context(services, 12), names("t"))).topics
    assert row.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_topic_creation_with_unknown_outcome_is_leader_not_available() -> None:
    zookeeper = MemoryZooKeeper()
    services = await lone_services(CREATING, zookeeper)
    services.metadata.image = IMAGE
    zookeeper.expire(services.session)  # type: ignore[arg-type]
    rows = (await metadata(context(services, 12), names("t", "new"))).topics
    assert [(row.name, row.error_code) for row in rows] == [("t", 0), ("new", ErrorCode.LEADER_NOT_AVAILABLE)]


async def test_existing_topics_are_described_while_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client with one missing topic does not find the leaders of its other topics."""
    monkeypatch.setattr(topic_creation, "AUTO_CREATION_MS", 10)
    services = await lone_services(CREATING)
    services.metadata.image = IMAGE
    services.session.lose_connection()  # type: ignore[attr-defined]
    async with asyncio.timeout(10):
        rows = (await metadata(context(services, 12), names("t", "new"))).topics
        missing = FindCoordinatorRequest(key="x", key_type=1)
        coordinator = await find_coordinator(context(services, 3), missing)
    assert [(row.name, row.error_code) for row in rows] == [("t", 0), ("new", ErrorCode.LEADER_NOT_AVAILABLE)]
    assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_topics_beyond_the_time_for_creation_are_created_by_later_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request may name 100,000 topics: each response comes soon, with progress."""
    monkeypatch.setattr(metadata_module, "CREATE_MS", 0)
    monkeypatch.setattr(metadata_module, "SETTLE_MS", 0)
    services = await lone_services(CREATING)
    services.metadata.image = ClusterImage(brokers=IMAGE.brokers, controller_id=2)
    requested = [f"new-{number}" for number in range(300)]
    for count in (1, 2):
        rows = (await metadata(context(services, 12), names(*requested, "no/topic"))).topics
        codes = {row.name: row.error_code for row in rows}
        assert codes.pop("no/topic") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert set(codes.values()) == {ErrorCode.LEADER_NOT_AVAILABLE}
        assert len(await services.session.children("/brokers/topics")) == count
        requested = requested[1:]


async def test_automatic_creation_is_charged_to_the_quota_of_the_client() -> None:
    services = await assembled()
    assert services.throttling is not None
    services.throttling.quotas.set_limits((None, DEFAULT), {MUTATIONS: 1.0})
    services.metadata.image = ClusterImage(brokers=IMAGE.brokers, controller_id=2)
    ctx = context(services, 12)
    MutationCharge(ctx, strict=False).spend(1_000)
    response = await metadata(ctx, names("a", "b"))
    assert response.throttle_time_ms > 900_000
    assert [row.error_code for row in response.topics] == [ErrorCode.LEADER_NOT_AVAILABLE] * 2


async def test_partition_without_a_live_leader_keeps_its_leader_epoch() -> None:
    (topic,) = (await ask(metadata, names("t"), 9)).topics
    rows = {row.partition_index: (row.error_code, row.leader_id, row.leader_epoch) for row in topic.partitions}
    assert rows[0] == (ErrorCode.NONE, 1, 4)
    assert rows[1] == rows[2] == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 4)
    assert topic.partitions[0].offline_replicas == [9]


async def test_version_0_omits_offline_replicas() -> None:
    (topic,) = (await ask(metadata, names("t"), 0)).topics
    row = topic.partitions[0]
    assert (row.error_code, row.replica_nodes, row.isr_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1, 2], [1])


async def test_resizes_are_tagged_fields_of_flexible_versions() -> None:
    """The bytes of a flexible and of an older version."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], generation_aware=True)
    response = await ask(metadata, request, 9)
    (topic,) = codec.decode(MetadataResponse, 9, codec.encode(response, 9))[0].topics
    assert (topic.generation, topic.base, topic.ordered_delivery, topic.min_insync_replicas) == (2, 2, True, 2)
    assert [(step.generation, step.count) for step in topic.history] == [(0, 2), (2, 3)]
    assert [(one.generation, one.leader_epoch) for one in topic.partitions[0].gen_start] == [(0, 0), (2, 3)]
    (topic,) = codec.decode(MetadataResponse, 8, codec.encode(response, 8))[0].topics
    assert (topic.generation, topic.history) == (-1, [])


@pytest.mark.parametrize(
    ("asked", "version", "code"),
    [
        (MetadataRequestTopic(name="missing"), 4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MetadataRequestTopic(name="in valid"), 4, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (MetadataRequestTopic(name=""), 4, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (MetadataRequestTopic(name=None, topic_id=ID), 12, ErrorCode.NONE),
        (MetadataRequestTopic(name=None, topic_id=b"\1" * 16), 12, ErrorCode.UNKNOWN_TOPIC_ID),
        (MetadataRequestTopic(name=None, topic_id=bytes(16)), 12, ErrorCode.INVALID_REQUEST),
        (MetadataRequestTopic(name="t", topic_id=ID), 10, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_topic_row_has_the_error_of_the_request(
    asked: MetadataRequestTopic, version: int, code: ErrorCode
) -> None:
    (topic,) = (await ask(metadata, MetadataRequest(topics=[asked]), version)).topics
    assert topic.error_code == code


async def test_cluster_is_described() -> None:
    response = await ask(describe_cluster, DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    assert (response.controller_id, [one.broker_id for one in response.brokers]) == (2, [1, 2])
    assert response.cluster_authorized_operations == -(2**31), "nobody asked"
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    bits = (await ask(describe_cluster, request, 1)).cluster_authorized_operations
    assert [number for number in range(32) if bits >> number & 1] == [5, 7, 8, 9, 10, 11, 12]
    codes = {2: ErrorCode.MISMATCHED_ENDPOINT_TYPE, 3: ErrorCode.UNSUPPORTED_ENDPOINT_TYPE}
    for endpoint_type, code in codes.items():
        wrong = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
        assert (await ask(describe_cluster, wrong, 1)).error_code == code


async def test_authorized_operations_are_returned_on_request() -> None:
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    (bits,) = {row.topic_authorized_operations for row in (await ask(metadata, request, 12)).topics}
    assert [number for number in range(32) if bits >> number & 1] == [3, 4, 5, 6, 7, 8, 10, 11]
    assert {row.topic_authorized_operations for row in (await ask(metadata, names("t"), 12)).topics} == {-(2**31)}
    request = MetadataRequest(topics=None, include_cluster_authorized_operations=True)
    assert (await ask(metadata, request, 10)).cluster_authorized_operations > 0


def test_lineage_epochs_are_returned() -> None:
    topic = TOPICS["t"]
    old = epochs_of(topic, 0)
    assert (old.leader_epoch_after_creation, old.leader_epoch_before_deletion, old.error_code) == (-1, -1, 0)
    assert [(one.generation, one.leader_epoch) for one in old.gen_start] == [(0, 0), (2, 3)]
    born = TopicImage("t", ID, {2: partition(2, 1, gen_start=((2, 5),))}, history=((0, 2), (2, 3)))
    assert epochs_of(born, 2).leader_epoch_after_creation == 5
    dying = TopicImage("t", ID, {1: partition(1, 1, gen_start=((0, 0), (3, 6)), marked_for_deletion=True)})
    assert epochs_of(dying, 1).leader_epoch_before_deletion == 5
    assert epochs_of(topic, 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert epochs_of(None, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_one_request_finds_coordinators_of_many_groups() -> None:
    groups = [f"g{n}" for n in range(6)]
    response = await ask(find_coordinator, FindCoordinatorRequest(coordinator_keys=groups), 4)
    assert [one.key for one in response.coordinators] == groups
    for one in response.coordinators:
        if partition_of_group(one.key, 2) == 1:
            assert (one.error_code, one.node_id, one.host, one.port) == (0, 2, "host-2", 9002)
        else:
            assert (one.error_code, one.node_id, one.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert len({one.error_code for one in response.coordinators}) == 2


async def test_coordinators_are_found_by_key_type() -> None:
    """A transactional id's topic cannot be created with too few brokers; share groups are not served (KIP-932)."""

    async def error(key_type: int, version: int, key: str = "x") -> int:
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response = await ask(find_coordinator, request, version)
        return int(response.error_code if version < 4 else response.coordinators[0].error_code)

    assert await error(1, 1) == await error(1, 4) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await error(2, 5) == await error(3, 6) == await error(3, 1) == ErrorCode.INVALID_REQUEST
    assert await error(2, 6, "g:AAAAAAAAAAAAAAAAAAAAAQ:0") == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("group", "partition"), [("", 0), ("my-group", 12), ("g\U0001d11e", 27), ("polygenelubricants", 0)]
)
def test_group_partition_uses_javas_string_hash(group: str, partition: int) -> None:
    """`Utils.abs(name.hashCode()) % 50`; the hash of "polygenelubricants" is Integer.MIN_VALUE."""
    assert partition_of_group(group, 50) == partition


async def test_idempotent_producers_get_new_producer_ids() -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    response = await ask(init_producer_id, request, 4)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 0, 0)


async def test_stale_controller_and_broker_epochs_are_refused() -> None:
    services = await lone_services()
    services.fence.broker_epoch = 50

    async def send(controller_epoch: int, broker_epoch: int) -> int:
        request = UpdateMetadataRequest(
            controller_id=1, controller_epoch=controller_epoch, broker_epoch=broker_epoch, live_brokers=[]
        )
        response = await update_metadata(context(services, 8), request)
        return int(response.error_code)

    assert await send(3, 50) == ErrorCode.NONE
    assert await send(2, 50) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert await send(3, 49) == ErrorCode.STALE_BROKER_EPOCH
    assert await send(4, 51) == ErrorCode.NONE
    assert await send(4, -1) == ErrorCode.NONE


async def test_topic_and_broker_configs_are_described() -> None:
    def resource(kind: int, name: str, keys: list[str] | None = None) -> DescribeConfigsRequest:
        one = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        return DescribeConfigsRequest(resources=[one], include_synonyms=True)

    (result,) = (await ask(describe_configs, resource(2, "t", ["min.insync.replicas", "no.such"]), 4)).results
    (row,) = result.configs
    assert (row.name, row.value, row.config_source, row.config_type) == ("min.insync.replicas", "1", 5, 3)
    (result,) = (await ask(describe_configs, resource(4, "1"), 0)).results
    shown = {row.name: (row.value, row.read_only) for row in result.configs}
    assert shown["auto.create.topics.enable"] == ("false", True)
    assert shown["log.retention.bytes"] == ("-1", False)
    assert (await ask(describe_configs, resource(4, "2"), 4)).results[0].error_code == ErrorCode.INVALID_REQUEST
    gone = await ask(describe_configs, resource(2, "gone"), 4)
    assert gone.results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await ask(describe_configs, resource(77, "t"), 4)).results[0].error_code == ErrorCode.INVALID_REQUEST
