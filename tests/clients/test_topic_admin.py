"""Goal: topics are created, resized, described and deleted on a real cluster, and refusals name the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch import Admin, NewTopic
from anabranch.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from anabranch.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.peer import serve
from tests.clients.test_admin import cluster_and_admin


async def test_topics_are_created_listed_and_deleted() -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics(
            [
                NewTopic(name="a", partitions=3, replication_factor=2, configs={"min.insync.replicas": "2"}),
                NewTopic(name="b", assignments={0: [2], 1: [1]}),
            ]
        )
        topic = await admin.wait_for_topic("a", replicas=2)
        assert (len(topic.partitions), topic.generation, topic.live) == (3, 0, (0, 1, 2))
        assert topic.min_insync_replicas == 2
        placed = await admin.wait_for_topic("b")
        assert {index: one.replicas for index, one in placed.partitions.items()} == {0: (2,), 1: (1,)}
        assert await admin.list_topics() == ["a", "b"]
        assert set(await admin.describe_topics()) == {"a", "b"}
        await admin.delete_topics(["a"])
        await admin.wait_until(lambda metadata: "a" not in metadata.topics, "a")
        assert await admin.list_topics() == ["b"]
        with pytest.raises(KafkaError) as unknown:
            await admin.describe_topic("a")
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_describe_does_not_create_topic() -> None:
    async with cluster_and_admin() as (_, admin):
        with pytest.raises(KafkaError):
            await admin.describe_topic("ghost")
        with pytest.raises(TimeoutError):
            await admin.wait_for_topic("ghost", timeout_ms=100)
        assert await admin.list_topics() == []


async def test_topics_are_resized_both_ways() -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics([NewTopic(name="t", partitions=4, replication_factor=2)])
        await admin.wait_for_topic("t", replicas=2)
        await admin.create_partitions("t", 6)
        grown = await admin.wait_for_generation("t", 1)
        assert grown.live == tuple(range(6))
        await admin.create_partitions("t", 3, allow_shrink=True)
        shrunk = await admin.wait_for_generation("t", 2)
        assert shrunk.lineage is not None
        assert (shrunk.lineage.history, shrunk.live) == (((0, 4), (1, 6), (2, 3)), (0, 1, 2))
        assert [index for index, one in shrunk.partitions.items() if one.marked_for_deletion] == [3, 4, 5]
        with pytest.raises(TimeoutError):
            await admin.wait_for_generation("t", 9, timeout_ms=100)


async def test_value_that_no_request_can_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="request_timeout_ms is a whole number up to 2147483647, not 2147483648"):
        Admin(request_timeout_ms=2**31)
    async with cluster_and_admin() as (_, admin):
        name: Any = 5
        with pytest.raises(ValueError, match="CreatePartitionsRequest cannot carry one of its values"):
            await admin.create_partitions("t", 2**40)
        with pytest.raises(ValueError, match="CreateTopicsRequest cannot carry one of its values"):
            await admin.create_topics([NewTopic(name=name)])
        with pytest.raises(ValueError, match="DescribeConfigsRequest cannot carry one of its values"):
            await admin.describe_configs(name)
        assert await admin.list_topics() == []


async def test_single_name_in_place_of_a_list_is_refused() -> None:
    """Its letters are names, too: "ab" would delete the topics a and b."""
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics([NewTopic(name="a", partitions=1), NewTopic(name="b", partitions=1)])
        for call in (admin.delete_topics, admin.describe_topics, admin.describe_users):
            with pytest.raises(TypeError, match=r"names are a list, as \['ab'\]"):
                await call("ab")
        assert await admin.list_topics() == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda admin: admin.create_topics([NewTopic(name="t", partitions=1)]), ErrorCode.TOPIC_ALREADY_EXISTS),
        (lambda admin: admin.create_topics([NewTopic(name="bad/name")]), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (
            lambda admin: admin.create_topics([NewTopic(name="x", partitions=1, replication_factor=9)]),
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ),
        (lambda admin: admin.create_partitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (lambda admin: admin.create_partitions("ghost", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.delete_topics(["ghost"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["exists", "name", "replicas", "shrinks", "resize-ghost", "delete-ghost"],
)
async def test_refusals_have_kafka_error_codes(change: Callable[[Admin], Awaitable[None]], code: ErrorCode) -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics([NewTopic(name="t", partitions=4, replication_factor=1)])
        await admin.wait_for_topic("t")
        with pytest.raises(KafkaError) as refused:
            await change(admin)
        assert refused.value.code == code


async def test_cluster_is_described() -> None:
    async with cluster_and_admin() as (_, admin):
        description = await admin.describe_cluster()
        assert [broker.node_id for broker in description.brokers] == [1, 2]
        assert description.controller_id in (1, 2)
        assert len(description.cluster_id) == 22


async def test_changes_survive_loss_of_controller() -> None:
    async with cluster_and_admin(brokers=3) as (cluster, admin):
        controller = (await admin.describe_cluster()).controller_id
        await cluster.stop_broker(controller)
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        await admin.wait_for_topic("t")
        assert (await admin.describe_cluster()).controller_id != controller


@pytest.mark.parametrize("answered", [True, False], ids=["refused", "done before"])
async def test_topic_that_exists_after_lost_response_counts_as_created(answered: bool) -> None:
    """The first attempt is carried out and its answer lost: the refusal of the second one means success."""
    attempts: list[CreateTopicsRequest] = []

    async def controller(request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=peer.port)
            return MetadataResponse(brokers=[node], controller_id=1, topics=[])
        attempts.append(request)
        if len(attempts) == 1 and not answered:
            raise ConnectionResetError
        row = CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
        return CreateTopicsResponse(topics=[row])

    async with serve(controller) as peer, Admin(peer.address) as admin:
        creating = admin.create_topics([NewTopic(name="t")])
        if not answered:
            await creating
            assert len(attempts) == 2
        else:
            with pytest.raises(KafkaError, match="ALREADY_EXISTS"):
                await creating


async def test_empty_metadata_of_starting_node_is_retried() -> None:
    """It has just started; that a topic is missing in its answer means nothing."""
    answers: list[MetadataResponse] = []

    async def broker(request: MetadataRequest) -> MetadataResponse:
        self = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=peer.port)
        asked = [one.name for one in request.topics or ()]
        knows = not asked or bool(answers)
        rows = [
            MetadataResponseTopic(
                error_code=ErrorCode.NONE if knows else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[]
            )
            for name in asked
        ]
        answer = MetadataResponse(brokers=[self] if knows else [], controller_id=1, cluster_id="c", topics=rows)
        if asked:
            answers.append(answer)
        return answer

    async with serve(broker) as peer, Admin(peer.address) as admin:
        assert (await admin.describe_topic("t")).name == "t"
    assert len(answers) == 2
