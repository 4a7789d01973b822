"""An application gets its internal topics, whatever exists already."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from anabranch import Admin, NewTopic
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager
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
