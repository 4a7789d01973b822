"""The APIs of KIP-848, as in Kafka's brokers with ZooKeeper."""

from __future__ import annotations

from anabranch.clients.connection import Connection
from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode
from tests.broker.serving import serving


async def test_consumer_group_apis_are_advertised_and_refused_when_disabled() -> None:
    async with serving() as server:
        connection = await Connection.open("127.0.0.1", server.port, client_id="test")
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"], topic_partitions=[]
        )
        assert (await connection.call(beat)).error_code == ErrorCode.UNSUPPORTED_VERSION
        request = ConsumerGroupDescribeRequest(group_ids=["a", "b"], include_authorized_operations=True)
        rows = (await connection.call(request)).groups
        assert [(row.group_id, ErrorCode(row.error_code)) for row in rows] == [
            ("a", ErrorCode.UNSUPPORTED_VERSION),
            ("b", ErrorCode.UNSUPPORTED_VERSION),
        ]
        await connection.close()
