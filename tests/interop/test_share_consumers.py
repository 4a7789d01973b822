"""Share consumers of Kafka (Java) and franz-go share partitions while the coordinator dies.

Neither is part of this project. franz-go is built by Go, which fetches it. For Java point ANABRANCH_KAFKA_4_JARS at a
directory that Maven has filled:

    mvn dependency:copy-dependencies -DoutputDirectory=...    # of a project that depends on kafka-clients 4.2
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.coordinators.share_partitions.share_coordinator import name_of
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.hashing import partition_of_group
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC, SHARE_STATE_TOPIC
from anabranch.spark_jobs import java
from tests.broker.replication.replica_cluster import until

pytestmark = [pytest.mark.interop]

VARIABLE = "ANABRANCH_KAFKA_4_JARS"
DIRECTORY = os.environ.get(VARIABLE, "")
JARS = list(Path(DIRECTORY).glob("kafka-clients-4.[2-9]*.jar")) if DIRECTORY else []
HERE = Path(__file__).parent
PROGRAM = HERE / "ShareMembers.java"
GROUP = "shared"
COUNT = 2_000
MEMBERS = 3


@pytest.fixture
def java_members() -> list[str]:
    if not JARS or java.why_missing(module=java.COMPILER):
        pytest.skip(
            f"NOT TRIED WITH KAFKA'S SHARE CONSUMERS: {VARIABLE}={DIRECTORY!r} has no kafka-clients 4.2, or no JDK"
        )
    return [str(java.find(module=java.COMPILER).command), "-cp", f"{DIRECTORY}/*", str(PROGRAM)]


@pytest.fixture
def franz_members(tmp_path: Path) -> list[str]:
    if shutil.which("go") is None or not os.environ.get("ANABRANCH_INTEROP"):
        pytest.skip("NOT TRIED WITH FRANZ-GO'S SHARE CONSUMERS: set ANABRANCH_INTEROP, and install Go")
    build = ["go", "build", "-o", str(tmp_path / "members"), "."]
    subprocess.run(build, cwd=HERE / "drivers" / "franz_share", check=True, timeout=300)
    return [str(tmp_path / "members")]


@pytest.mark.parametrize(
    "client", [pytest.param("java_members", marks=pytest.mark.kafka_jars), "franz_members"], ids=["java", "franz-go"]
)
async def test_every_record_is_accepted_while_coordinators_die(client: str, request: pytest.FixtureRequest) -> None:
    words = request.getfixturevalue(client)
    async with Cluster(3, kafka="4.2") as cluster, asyncio.timeout(240):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=3)])
            await admin.wait_for_topic("t")
        process = await asyncio.create_subprocess_exec(
            *(*words, cluster.bootstrap_servers, "t", str(MEMBERS), str(COUNT)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"ready\n"
            await until(lambda: all(has_started(cluster, index) for index in (0, 1)))
            async with Producer(cluster.bootstrap_servers) as producer:
                for number in range(COUNT):
                    await producer.send("t", b"%d" % number, b"%d" % number)
                    if number in (COUNT // 3, COUNT * 2 // 3):
                        await producer.flush()
                        await crash_coordinator(cluster, of_group=number == COUNT // 3)
            output = (await process.stdout.readline()).split()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    counts = dict(zip(output[::2], map(int, output[1::2]), strict=True))
    assert counts[b"accepted"] == COUNT
    assert counts[b"again"] >= COUNT // 10, "what was released comes again"
    assert counts.get(b"returned", 0) == 0, "what was accepted does not"


def topic_id(cluster: Cluster) -> bytes:
    return next(iter(cluster.nodes.values())).services.metadata.topic_id("t")


async def crash_coordinator(cluster: Cluster, *, of_group: bool) -> None:
    """Crash the group coordinator, which starts again, or the share coordinator of a partition, which does not."""
    key = ShareKey(GROUP, topic_id(cluster), 0)
    topic, name = (CONSUMER_OFFSETS_TOPIC, GROUP) if of_group else (SHARE_STATE_TOPIC, name_of(key))
    metadata = next(iter(cluster.nodes.values())).services.metadata
    found = metadata.partition(topic, partition_of_group(name, len(metadata.image.topics[topic].partitions)))
    assert found is not None
    await cluster.crash_broker(found.leader)
    if of_group:
        await cluster.start_broker(found.leader)


def has_started(cluster: Cluster, index: int) -> bool:
    """Whether the group has begun to read a partition, so that nothing sent from now on lies before its start."""
    node = cluster.nodes[next(iter(cluster.nodes.values())).services.metadata.partition("t", index).leader]  # type: ignore[union-attr]
    shares = node.services.broker.shares.built if node.services.broker is not None else None
    return shares is not None and any(
        key.topic_id == topic_id(cluster) and key.partition == index and shares.partitions.get_loaded(key) is not None
        for key in shares.partitions.served_keys()
    )
