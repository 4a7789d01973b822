"""An application gets its internal topics, whatever exists already."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from anabranch import Admin, NewTopic
from anabranch.clients.streams import internal_topic_manager
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.topology import Topology
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.streams.world import counts

CHANGELOG = "app-counts-changelog"


class WatchedAdmin(Admin):
    """Reports failed topic creations."""

    refused: asyncio.Event

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        try:
            await super().create_topics(topics, validate_only=validate_only)
        except KafkaError as error:
            assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
            self.refused.set()
            raise


async def test_changelog_is_created_once_deletion_of_its_predecessor_has_ended() -> None:
    """A stopped broker has the old topic's logs, so it cannot be created yet."""
    async with (
        asyncio.timeout(100),
        Cluster(brokers=2, seed=1) as cluster,
        WatchedAdmin(cluster.bootstrap_servers) as admin,
    ):
        admin.refused = asyncio.Event()
        topics = InternalTopicManager(admin, "app", counts().build("app"), replication_factor=1)
        await admin.create_topics([NewTopic(name=CHANGELOG, assignments={0: [2]})])
        await admin.wait_for_topic(CHANGELOG)
        await cluster.stop_broker(2)
        await admin.delete_topics([CHANGELOG])
        making = asyncio.ensure_future(topics.prepare(CHANGELOG, 3))
        await admin.refused.wait()
        await cluster.start_broker(2)
        assert await making
        assert len((await admin.describe_topic(CHANGELOG)).partitions) == 3


async def test_repartition_topic_is_not_made_before_the_topic_that_says_how_wide_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be too narrow for ever."""
    topology = Topology()
    topology.stream("in").repartition("parts").count("counts")
    async with asyncio.timeout(100), Cluster(brokers=1, seed=1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        topics = InternalTopicManager(admin, "app", topology.build("app"), replication_factor=1)
        monkeypatch.setattr(internal_topic_manager, "MISSING_TOPIC_S", 0.2)
        with pytest.raises(StreamsError, match="the topic in does not exist: create it first"):
            await topics.prepare_repartition()
        assert "app-parts-repartition" not in await admin.describe_topics()
        await admin.create_topics([NewTopic(name="in", partitions=5)])
        monkeypatch.setattr(internal_topic_manager, "MISSING_TOPIC_S", 60)
        await topics.prepare_repartition()
        assert len((await admin.describe_topic("app-parts-repartition")).partitions) == 5


async def test_missing_partner_of_a_repartition_topic_is_as_wide_as_that_whatever_the_inputs_are_now() -> None:
    topology = Topology()
    parts = [topology.stream(name).repartition(name) for name in ("one", "two")]
    parts[0].merge(parts[1]).count("counts")
    async with asyncio.timeout(100), Cluster(brokers=1, seed=1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        widths = {"one": 5, "two": 5, "app-one-repartition": 3}
        await admin.create_topics([NewTopic(name=name, partitions=count) for name, count in widths.items()])
        for name in widths:
            await admin.wait_for_topic(name)
        await InternalTopicManager(admin, "app", topology.build("app"), replication_factor=1).prepare_repartition()
        assert len((await admin.describe_topic("app-two-repartition")).partitions) == 3


async def test_joined_topics_of_different_widths_are_an_error_of_the_application() -> None:
    """`anabranch streams` prints such errors in one line."""
    topology = Topology()
    topology.stream("in").repartition("parts").count("counts")
    topology.stream("one").join(topology.table("two"), lambda left, right: left).to("out")
    async with asyncio.timeout(100), Cluster(brokers=1, seed=1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        for name, count in {"in": 1, "one": 2, "two": 3}.items():
            await admin.create_topics([NewTopic(name=name, partitions=count)])
            await admin.wait_for_topic(name)
        topics = InternalTopicManager(admin, "app", topology.build("app"), replication_factor=1)
        with pytest.raises(StreamsError, match="their histories differ"):
            await topics.prepare_repartition()


async def test_changelog_is_widened_once_all_brokers_are_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the callers meet an outage, which they endure, and no refusal for good."""
    async with asyncio.timeout(100), Cluster(brokers=2, seed=1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        topics = InternalTopicManager(admin, "app", counts().build("app"), replication_factor=2)
        await topics.prepare(CHANGELOG, 1)
        await cluster.stop_broker(2)
        monkeypatch.setattr(internal_topic_manager, "WIDEN_TIMEOUT_S", 0.3)
        with pytest.raises(TimeoutError, match=f"{CHANGELOG} cannot be widened now: INVALID_REPLICATION_FACTOR"):
            await topics.prepare(CHANGELOG, 3)
        monkeypatch.undo()
        widening = asyncio.ensure_future(topics.prepare(CHANGELOG, 3))
        await cluster.start_broker(2)
        await widening
        assert len((await admin.describe_topic(CHANGELOG)).partitions) == 3


async def test_ids_of_topics_that_exist_are_looked_up() -> None:
    async with (
        asyncio.timeout(100),
        Cluster(brokers=1, seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        topics = InternalTopicManager(admin, "app", counts().build("app"), replication_factor=1)
        await topics.prepare(CHANGELOG, 3)
        present = (await admin.describe_topic(CHANGELOG)).topic_id
        assert await topics.topic_ids({CHANGELOG, "app-none-changelog"}) == {CHANGELOG: present}


async def test_ids_that_cannot_be_looked_up_are_left_out() -> None:
    """A commit that asks then takes the changelog for another one, and its tasks look again."""

    class Unreachable:
        async def describe_topic(self, name: str) -> None:
            raise ConnectionError("no node responded")

    topics = InternalTopicManager(cast(Admin, Unreachable()), "app", counts().build("app"), replication_factor=1)
    assert await topics.topic_ids({CHANGELOG}) == {}
