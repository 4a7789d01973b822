"""Topics are created, resized, described and deleted on a real cluster; refusals name the reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import Admin, NewTopic
from anabranch.cluster.in_process import Cluster


@asynccontextmanager
async def cluster_and_admin(*, brokers: int = 2) -> AsyncIterator[tuple[Cluster, Admin]]:
    async with (
        asyncio.timeout(60),
        Cluster(brokers=brokers, seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        yield cluster, admin


async def test_configs() -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics(
            [NewTopic(name="t", partitions=1, replication_factor=1, configs={"retention.ms": "1234"})]
        )
        await admin.wait_for_topic("t")
        configs = await admin.describe_configs("t")
        assert configs["retention.ms"].value == "1234"
        assert configs["max.message.bytes"].value == "1048588"
        assert configs["retention.ms"].source != configs["max.message.bytes"].source
        assert await admin.describe_configs(broker=2)
        with pytest.raises(ValueError, match="name a topic, a broker"):
            await admin.describe_configs()


async def test_changes_survive_the_loss_of_the_controller() -> None:
    async with cluster_and_admin(brokers=3) as (cluster, admin):
        controller = (await admin.describe_cluster()).controller_id
        await cluster.stop_broker(controller)
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        await admin.wait_for_topic("t")
        assert (await admin.describe_cluster()).controller_id != controller


@pytest.mark.parametrize("answered", [True, False], ids=["refused", "done before"])
async def test_a_topic_that_exists_after_a_lost_answer_was_created_by_us(answered: bool) -> None:
    """The first attempt succeeded and its response was lost: the second one's refusal means success."""
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


async def test_a_node_that_knows_nothing_yet_is_not_believed_about_topics() -> None:
    """It has just started; a missing topic in its response means nothing."""
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


async def test_life() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, _):
        other = Admin(cluster.bootstrap_servers)
        with pytest.raises(RuntimeError, match="not started"):
            await other.list_topics()
        await other.start()
        await other.stop()
        await other.stop()
        with pytest.raises(RuntimeError, match="not started"):
            await other.list_topics()
