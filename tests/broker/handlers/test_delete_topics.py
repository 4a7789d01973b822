"""Deletion on real brokers: hidden at once, complete when every replica is deleted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from anabranch.broker.handlers import delete_topics as handler
from anabranch.cluster.in_process import Cluster
from anabranch.controller.topic_admin import delete_topic
from anabranch.controller.zk import paths
from anabranch.controller.zk.session import ZkSession
from anabranch.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.wire import ZERO_UUID
from tests.anabranch.cluster.test_in_process import active_controller, ask, create, describe

pytestmark = pytest.mark.timeout(60)


async def test_replica_on_an_offline_broker_is_deleted_when_it_returns() -> None:
    async with Cluster(3) as cluster:
        assert (await create(cluster, "t")).error_code == 0
        away = active_controller(cluster) % 3 + 1
        files = cluster._data.files[away]
        await cluster.crash_broker(away)
        at = active_controller(cluster)
        watcher = cluster.nodes[at].services
        assert await watcher.metadata.wait_until(lambda image: away not in image.brokers, 60_000)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=60_000)
        (deleted,) = (await ask(cluster, at, request)).responses
        assert deleted.error_code == 0
        assert f"cannot be reused until broker {away}, which holds" in deleted.error_message
        assert (await describe(cluster, "t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = await create(cluster, "t", replicas=2)
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS, "it is marked for deletion until all is gone"
        assert "Topic 't' is marked for deletion" in again.error_message
        checked = CreateTopicsRequest(
            topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=2, assignments=[], configs=[])],
            timeout_ms=60_000,
            validate_only=True,
        )
        (would,) = (await ask(cluster, at, checked)).topics
        assert (would.error_code, would.error_message) == (again.error_code, again.error_message)
        assert files.names("t-0")
        await cluster.start_broker(away)
        while await watcher.session.exists(paths.topic("t")) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert "t-0" not in files.names(""), "renamed, to be removed after a while"
        assert (await create(cluster, "t", partitions=2)).error_code == 0


async def test_deletion_by_id_never_deletes_the_next_topic_of_the_name() -> None:
    """KIP-516. This broker has not heard that the topic of this id was deleted and created again."""
    async with Cluster(1) as cluster:
        assert (await create(cluster, "t", replicas=1)).error_code == 0
        metadata = cluster.nodes[1].services.metadata
        present, earlier = metadata.topic_id("t"), b"earlier".ljust(16)
        metadata.image = replace(metadata.image, names={earlier: "t", present: "t"})

        async def delete(topic_id: bytes) -> int:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=60_000)
            return (await ask(cluster, 1, request)).responses[0].error_code

        assert await delete(earlier) == ErrorCode.UNKNOWN_TOPIC_ID
        assert metadata.topic("t") is not None
        assert await delete(present) == ErrorCode.NONE


async def test_topic_that_is_created_again_meanwhile_counts_as_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for many topics deletes the first ones long before the last ones."""
    async with Cluster(1) as cluster:
        for name in ("t", "u"):
            assert (await create(cluster, name, replicas=1)).error_code == 0
        session = cluster.nodes[1].services.session

        async def delete_later(given: ZkSession, name: str, topic_id: bytes = ZERO_UUID) -> None:
            if name == "u":
                while await session.exists(paths.topic("t")) is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert (await create(cluster, "t", replicas=1)).error_code == 0
            await delete_topic(given, name, topic_id)

        monkeypatch.setattr(handler, "delete_topic", delete_later)
        topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in ("t", "u")]
        answer = await ask(cluster, 1, DeleteTopicsRequest(topics=topics, timeout_ms=2_000))
        assert [row.error_code for row in answer.responses] == [0, 0]


async def test_controller_without_metadata_of_a_topic_deletes_it() -> None:
    """A new controller has not read the topics yet, so an unknown topic may exist."""
    async with Cluster(1) as cluster:
        assert (await create(cluster, "t", replicas=1)).error_code == 0
        metadata = cluster.nodes[1].services.metadata
        metadata.image = replace(metadata.image, topics={})
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=60_000)
        assert (await ask(cluster, 1, request)).responses[0].error_code == 0
        while await cluster.nodes[1].services.session.exists(paths.topic("t")) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        missing = await ask(cluster, 1, request)
        assert missing.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
