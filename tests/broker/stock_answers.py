"""Frames that a node answers to stock requests about a topic that was resized: `stock_answers.json`.

    python -m tests.broker.stock_answers     asks nodes again, and writes the file

Metadata, Produce and Fetch are asked at every version. Ids come from a seed, and the port is written over.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from anabranch.clients.admin import Admin
from anabranch.clients.connection import Connection
from anabranch.clients.producer.producer import Producer
from anabranch.clients.topic_admin import NewTopic
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.registry import api_of
from tests.broker.profiles.golden import _ask
from tests.protocol.messages import as_sent

FILE: Final = Path(__file__).parent / "stock_answers.json"
TOPIC: Final = "orders"
KAFKAS: Final = ("3.9", "4.2")


def batch() -> bytes:
    """A batch of one record, as a producer without generations sends it."""
    builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp_ms=1_700_000_000_000)
    return bytes(builder.build())


def requests(topic_id: bytes) -> Iterator[Any]:
    """The requests, which hold what each of their versions needs."""
    yield MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    read = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in (0, 1)]
    topics = [FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=read)]
    yield FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    sent = [PartitionProduceData(index=index, records=batch()) for index in (0, 1, 9)]
    data = TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=sent)
    yield ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])


async def resized_topic(cluster: Cluster) -> bytes:
    """Make a topic whose producer sends generations, and double its partitions. Returns its id."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1)])
        await admin.wait_for_topic(TOPIC)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send(TOPIC, b"stamped", key=b"k", timestamp_ms=1_700_000_000_000)
            await producer.flush()
        await admin.create_partitions(TOPIC, 2)
        known = await admin.wait_until(lambda seen: len(seen.topics[TOPIC].partitions) == 2, TOPIC)
        return known.topics[TOPIC].topic_id


async def answers(kafka: str) -> dict[str, str]:
    """Each request by its name and version, and the frame that answered it in hexadecimal digits."""
    settings = {"controlled.shutdown.enable": "false"}
    async with Cluster(1, seed=1, kafka=kafka, properties=settings) as cluster:
        topic_id = await resized_topic(cluster)
        host, port = cluster.address(1)
        connection = await Connection.open(host, port, client_id="t")
        served = await connection.call(ApiVersionsRequest(), version=0)
        await connection.close()
        ranges = {one.api_key: range(one.min_version, one.max_version + 1) for one in served.api_keys}
        reader, writer = await asyncio.open_connection(host, port)
        shown = {}
        for request in requests(topic_id):
            api = api_of(type(request))
            for version in ranges[api.key]:
                if api.name == "Produce" and version < 3:
                    continue  # such versions carry message sets
                answer = await _ask(reader, writer, version, as_sent(request, version), version)
                masked = answer.replace(struct.pack(">i", port), b"port")
                shown[f"{kafka} {api.name} v{version}"] = masked.hex()
        writer.close()
        return shown


async def all_answers() -> dict[str, str]:
    """The frames of every Kafka of `KAFKAS`."""
    return {name: frame for kafka in KAFKAS for name, frame in (await answers(kafka)).items()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(asyncio.run(all_answers()), indent=1) + "\n")
