"""AlterPartition over TCP in every version: refused ISRs (KIP-497, KIP-903)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch import Admin, NewTopic
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import paths
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from anabranch.protocol.errors import ErrorCode

LEADER, FOLLOWER = 1, 2


class Asker:
    """Speaks to the controller as the leader would."""

    def __init__(self, cluster: Cluster, connection: Connection) -> None:
        self._node = cluster.nodes[LEADER]
        self._connection = connection

    async def state(self) -> tuple[bytes, int]:
        """What is committed, and the version of its znode."""
        data, stat = await self._node.session.get(paths.partition_state("t", 0))
        return data, stat.version

    async def ask(self, version: int, epochs: dict[int, int]) -> Any:
        """Propose this ISR on top of what is committed; the row of the answer."""
        topic = self._node.services.metadata.image.topics["t"]
        partition = self._node.services.replicas.partition("t", 0)
        _, znode_version = await self.state()
        row = PartitionData(partition_index=0, leader_epoch=partition.leader_epoch, partition_epoch=znode_version)
        if version < 3:
            row.new_isr = list(epochs)
        else:
            row.new_isr_with_epochs = [BrokerState(broker_id=one, broker_epoch=epoch) for one, epoch in epochs.items()]
        by_name, by_id = {"topic_name": "t"}, {"topic_id": topic.topic_id}
        named = TopicData(**(by_name if version < 2 else by_id), partitions=[row])
        request = AlterPartitionRequest(
            broker_id=LEADER, broker_epoch=self._node.services.fence.broker_epoch, topics=[named]
        )
        answer = await self._connection.call(request, version=version)
        assert answer.error_code == ErrorCode.NONE
        return answer.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.OPERATION_NOT_ATTEMPTED),
        (1, ErrorCode.OPERATION_NOT_ATTEMPTED),
        (2, ErrorCode.INELIGIBLE_REPLICA),
        (3, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
async def test_isr_with_dead_member_is_refused_with_the_error_of_the_version(version: int, code: ErrorCode) -> None:
    """Nothing is persisted; only newer versions get INELIGIBLE_REPLICA. The follower is dead, and the test sends the
    leader's request. Without epochs (0 to 2, and -1 in 3) the rule before KIP-903 holds; members with unknown epochs
    are accepted.
    """
    async with asyncio.timeout(60), Cluster(2) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", assignments={0: [LEADER, FOLLOWER]})])
        await admin.wait_for_topic("t", replicas=2)
        controller = cluster.nodes[LEADER]
        assert controller.controller is not None and controller.controller.active
        connection = await Connection.open("127.0.0.1", controller.port, client_id="broker-1")
        asker = Asker(cluster, connection)
        await cluster.crash_broker(FOLLOWER)
        await controller.services.metadata.wait_until(lambda image: FOLLOWER not in image.brokers, 60_000)
        before = await asker.state()
        assert (await asker.ask(version, {LEADER: -1, FOLLOWER: -1})).error_code == code
        assert await asker.state() == before
        accepted = await asker.ask(version, {LEADER: -1})
        assert (accepted.error_code, accepted.isr) == (ErrorCode.NONE, [LEADER])
        await connection.close()
