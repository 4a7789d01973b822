"""Which partitions may have a committed offset: those that a topic has, and those that it had."""

from __future__ import annotations

import pytest

from anabranch import Producer, TopicPartition
from anabranch.clients import group_admin
from anabranch.protocol.errors import KafkaError
from tests.clients.consumer.groups import GROUP, TOPIC, cluster_and_admin, make_topic, resize


@pytest.mark.parametrize("transactional", [False, True])
async def test_offset_of_removed_partition_is_committed(transactional: bool) -> None:
    """Kafka's client commits its position there before it joins again, and repeats a refused commit for minutes."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        await resize(admin, 4)
        await resize(admin, 2)
        await admin.wait_until(lambda metadata: set(metadata.topics[TOPIC].partitions) == {0, 1})
        removed, never = TopicPartition(TOPIC, 3), TopicPartition(TOPIC, 4)

        async def commit(partition: TopicPartition) -> None:
            if not transactional:
                await group_admin.commit_offsets(admin._network, GROUP, {partition: 0})
                return
            producer = Producer(cluster.bootstrap_servers, transactional_id="copier")
            async with producer, producer.transaction():
                await producer.send_offsets_to_transaction({partition: 0}, GROUP)

        await commit(removed)
        with pytest.raises(KafkaError):
            await commit(never)
        assert await group_admin.committed_offsets(admin._network, GROUP) == {removed: 0}
