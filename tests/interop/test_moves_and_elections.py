"""Reassignments and elections by other admin clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.cluster.in_process import Cluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]


async def beside_a_cluster(work: Callable[[str], None]) -> None:
    """Run blocking clients in a thread while a cluster runs here."""
    async with Cluster(3) as cluster, asyncio.timeout(60):
        await asyncio.get_running_loop().run_in_executor(None, work, cluster.bootstrap_servers)


async def test_librdkafka_elects_leaders() -> None:
    def work(servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics([NewTopic("t", 1, 3)]).values():
            created.result(60)
        asked = [ConfluentPartition("t", 0), ConfluentPartition("t", 9)]
        outcome = admin.elect_leaders(ElectionType.PREFERRED, asked).result(60)
        assert {one.partition: error.code() for one, error in outcome.items()} == {0: 84, 9: 3}
        assert admin.elect_leaders(ElectionType.UNCLEAN, None).result(60) == {}

    await beside_a_cluster(work)


async def test_kafka_python_reassigns_replicas_and_lists_reassignments() -> None:
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    def work(servers: str) -> None:
        creator = AdminClient({"bootstrap.servers": servers})
        for created in creator.create_topics([NewTopic("t", 1, 2)]).values():
            created.result(60)
        admin = KafkaAdminClient(bootstrap_servers=servers.split(","))
        try:
            partition = TopicPartition("t", 0)
            before = admin.describe_topics(["t"])[0]["partitions"][0]["replica_nodes"]
            (free,) = {1, 2, 3} - set(before)
            target = [free, before[0]]
            assert admin.alter_partition_reassignments({partition: target}) == {partition: None}
            while moving := admin.list_partition_reassignments():
                assert set(moving) == {partition}
            while (row := admin.describe_topics(["t"])[0]["partitions"][0])["replica_nodes"] != target:
                assert row["leader_id"] > 0
            assert sorted(row["isr_nodes"]) == sorted(target)
        finally:
            admin.close()

    await beside_a_cluster(work)
