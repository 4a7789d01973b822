"""Java's KafkaShareConsumer of Kafka 4.2: members of one group share partitions while a broker is killed.

Its jars are not part of this project: point ANABRANCH_KAFKA_4_JARS at a directory that Maven has filled:

    mvn dependency:copy-dependencies -DoutputDirectory=...    # of a project that depends on kafka-clients 4.2
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.cluster import Cluster
from anabranch.spark_jobs import java
from tests.broker.replication.replica_cluster import until

pytestmark = [pytest.mark.interop, pytest.mark.kafka_jars]

VARIABLE = "ANABRANCH_KAFKA_4_JARS"
DIRECTORY = os.environ.get(VARIABLE, "")
JARS = list(Path(DIRECTORY).glob("kafka-clients-4.[2-9]*.jar")) if DIRECTORY else []
PROGRAM = Path(__file__).with_name("ShareMembers.java")
COUNT = 2_000
MEMBERS = 3


async def test_every_record_is_accepted_although_a_broker_dies() -> None:
    if not JARS or java.why_missing(module=java.COMPILER):
        pytest.skip(
            f"NOT TRIED WITH KAFKA'S SHARE CONSUMERS: {VARIABLE}={DIRECTORY!r} has no kafka-clients 4.2, or no JDK"
        )
    async with Cluster(3, kafka="4.2") as cluster, asyncio.timeout(150):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=3)])
            await admin.wait_for_topic("t")
        process = await asyncio.create_subprocess_exec(
            java.find(module=java.COMPILER).command,
            "-cp",
            f"{DIRECTORY}/*",
            str(PROGRAM),
            cluster.bootstrap_servers,
            "t",
            str(MEMBERS),
            str(COUNT),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"ready\n"
            await until(lambda: all(begun(cluster, index) for index in (0, 1)))
            async with Producer(cluster.bootstrap_servers) as producer:
                for number in range(COUNT):
                    await producer.send("t", b"%d" % number, b"%d" % number)
                    if number == COUNT // 2:
                        await producer.flush()
                        await cluster.nodes.pop(3).stop(controlled=False)
            told = (await process.stdout.readline()).split()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    accepted, again = int(told[1]), int(told[3])
    assert accepted == COUNT
    assert again >= COUNT // 10, "what was released comes again"


def begun(cluster: Cluster, index: int) -> bool:
    """Whether the group has begun to read a partition, so that nothing sent from now on lies before its start."""
    node = cluster.nodes[next(iter(cluster.nodes.values())).services.metadata.partition("t", index).leader]  # type: ignore[union-attr]
    shares = node.services.broker.shares.built if node.services.broker is not None else None
    topic_id = node.services.metadata.topic_id("t")
    return shares is not None and any(
        key.topic_id == topic_id and key.partition == index and shares.partitions.known(key) is not None
        for key in shares.partitions.served()
    )
