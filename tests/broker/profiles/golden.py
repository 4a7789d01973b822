"""What a node answered to a list of requests before there were profiles, byte by byte: `golden_3_9.json`.

    python -m tests.broker.profiles.golden     asks a node again, and writes the file

Requests are listed here at every version that Kafka 3.9 has. Ids come from a seed, and the port is written over.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from anabranch.cluster.in_process import Cluster
from anabranch.protocol import codec
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.describe_transactions import DescribeTransactionsRequest
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.list_transactions import ListTransactionsRequest
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.protocol.registry import api_of

FILE: Final = Path(__file__).parent / "golden_3_9.json"
CONFIGS: Final = ["log.message.format.version", "message.max.bytes", "zookeeper.connect", "log.segment.bytes"]
TOPIC: Final = "orders"


def requests() -> Iterator[tuple[Any, int]]:
    """Requests whose answers a profile could have changed, each at every version of Kafka 3.9."""
    create = CreateTopicsRequest(
        topics=[CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[])],
        timeout_ms=30000,
    )
    yield create, 7
    said = {"client_software_name": "rdkafka", "client_software_version": "2.0"}
    yield from _each(ApiVersionsRequest(**said), 0, 4)
    yield from _each(MetadataRequest(topics=[]), 0, 0)
    yield from _each(MetadataRequest(topics=None), 1, 12)
    yield from _each(DescribeClusterRequest(include_cluster_authorized_operations=False), 0, 1)
    broker = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=CONFIGS)
    topic = DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
    yield from _each(DescribeConfigsRequest(resources=[broker, topic]), 0, 4)
    yield from _each(DescribeGroupsRequest(groups=["nobody"]), 0, 5)
    yield from _each(ListGroupsRequest(), 0, 5)
    yield from _each(DeleteGroupsRequest(groups_names=["nobody"]), 0, 2)
    yield from _each(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0, 1)
    yield from _each(DescribeTransactionsRequest(transactional_ids=["nobody"]), 0, 0)
    yield from _each(FindCoordinatorRequest(key="nobody", coordinator_keys=["nobody"]), 0, 6)
    offsets = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    yield from _each(ListOffsetsRequest(replica_id=-1, topics=[offsets]), 0, 9)
    group = OffsetFetchRequestGroup(group_id="nobody", topics=None)
    yield from _each(OffsetFetchRequest(group_id="nobody", topics=[], groups=[group]), 1, 9)
    data = TopicProduceData(name="no-topic", partition_data=[PartitionProduceData(index=0, records=b"")])
    yield from _each(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 0, 11)
    read = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    fetch = FetchTopic(topic=TOPIC, topic_id=bytes(16), partitions=[read])
    yield from _each(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[fetch]), 0, 17)
    yield from _each(EndTxnRequest(transactional_id="nobody", producer_id=1, producer_epoch=0, committed=True), 0, 4)
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=7)
    yield from _each(UpdateFeaturesRequest(feature_updates=[update], validate_only=True), 0, 1)
    yield ConsumerGroupHeartbeatRequest(group_id="g", member_id="", member_epoch=0), 0
    yield ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 0


def _each(request: Any, first: int, last: int) -> Iterator[tuple[Any, int]]:
    return ((request, version) for version in range(first, last + 1))


async def answers() -> list[tuple[str, str]]:
    """Each request by its name and version, and the frame that answered it in hexadecimal digits."""
    settings = {"num.partitions": "2", "controlled.shutdown.enable": "false"}
    async with Cluster(1, seed=1, properties=settings) as cluster:
        host, port = cluster.address(1)
        reader, writer = await asyncio.open_connection(host, port)
        responses = []
        for number, (request, version) in enumerate(requests()):
            answer = await _ask(reader, writer, number, request, version)
            shown = answer.replace(struct.pack(">i", port), b"port").replace(str(port).encode(), b"port!")
            responses.append((f"{api_of(type(request)).name} v{version} #{number}", shown.hex()))
        writer.close()
        return responses


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, request: Any, version: int
) -> bytes:
    """Return the response; retry while a coordinator is being created."""
    api = api_of(type(request))
    head = struct.pack(">hhih", api.key, version, number, 1) + b"t" + (b"\0" if api.flexible(version) else b"")
    frame = head + codec.encode(request, version)
    while True:
        writer.write(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(length)
        if not any(struct.pack(">h", code) in answer for code in (14, 15)) or api.name not in COORDINATED:
            return answer
        await asyncio.sleep(0.05)


COORDINATED: Final = ("FindCoordinator", "DescribeGroups", "OffsetFetch", "DeleteGroups", "EndTxn", "ListTransactions")
"""APIs that may be refused until a coordinator is ready (errors 14 and 15)."""


if __name__ == "__main__":
    FILE.write_text(json.dumps(dict(asyncio.run(answers())), indent=1) + "\n")
