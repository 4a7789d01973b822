"""Kafka's producer (Java, 4.x) ends hundreds of transactions: commits, aborts, offsets, new producers.

Versions 4 of Kafka's clients begin the next transaction while the markers of the last one are being written, so most of
their requests meet a pending transition. Any error that the producer cannot get over ends the program.

The jars are not part of this project. Point ANABRANCH_KAFKA_4_JARS at a directory that Maven has filled:

    mvn dependency:copy-dependencies -DoutputDirectory=...    # of a project that depends on kafka-clients 4.2
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from anabranch import Admin, Consumer, NewTopic
from anabranch.cluster.in_process import Cluster
from anabranch.spark_jobs import java
from tests.broker.replication.replica_cluster import until

pytestmark = [pytest.mark.interop, pytest.mark.kafka_jars]

VARIABLE: Final = "ANABRANCH_KAFKA_4_JARS"
PROGRAM: Final = Path(__file__).parent / "TransactionLoop.java"
PARTITIONS: Final = 60
ROUNDS: Final = 300
SENT: Final = 20
KINDS: Final = ("commit", "abort", "alternate", "offsets", "init", "mixed")
MIXED: Final = ("commit", "offsets", "abort", "alternate", "init")


@pytest.fixture
def loop() -> list[str]:
    directory = os.environ.get(VARIABLE, "")
    if (
        not directory
        or not list(Path(directory).glob("kafka-clients-4.*.jar"))
        or java.why_missing(module=java.COMPILER)
    ):
        pytest.skip(f"NOT TRIED WITH KAFKA'S PRODUCER: {VARIABLE}={directory!r} has no kafka-clients 4, or no JDK")
    return [str(java.find(module=java.COMPILER).command), "-cp", f"{directory}/*", str(PROGRAM)]


def commits(kind: str, number: int) -> bool:
    """Whether the program commits this round; it leaves some open, which the next producer aborts."""
    kind = MIXED[number % len(MIXED)] if kind == "mixed" else kind
    outcomes = {"commit": True, "abort": False, "alternate": number % 2 == 0, "offsets": number % 3 != 2}
    return outcomes.get(kind, number % 2 == 1)


@pytest.mark.parametrize("kafka", ["4.1", "4.2"])
async def test_every_transaction_has_the_outcome_its_producer_reported(kafka: str, loop: list[str]) -> None:
    async with Cluster(1, kafka=kafka) as cluster, asyncio.timeout(600):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=PARTITIONS)])
            await admin.wait_for_topic("t")
            process = await asyncio.create_subprocess_exec(
                *(*loop, cluster.bootstrap_servers, "t", str(PARTITIONS), str(ROUNDS)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                output, errors = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            assert process.returncode == 0, errors.decode()[-3000:]
            assert [line.split()[0].decode() for line in output.splitlines()] == list(KINDS)
        offsets = next(iter(cluster.nodes.values())).services.groups.offsets
        for kind in ("offsets", "mixed"):
            await until(lambda kind=kind: offsets.of(f"group-{kind}").offset_of(("t", 0)) == last_offset(kind))  # type: ignore[misc]
        expected = [f"{kind}/{number}/committed" for kind in KINDS for number in range(ROUNDS) if commits(kind, number)]
        assert await values(cluster.bootstrap_servers, SENT * len(expected)) == sorted(expected * SENT)


def last_offset(kind: str) -> int:
    """The last offset that was committed in a transaction of this kind of rounds."""
    with_offsets = [one for one in range(ROUNDS) if kind == "offsets" or MIXED[one % len(MIXED)] == "offsets"]
    return max(one for one in with_offsets if commits("offsets", one))


async def values(servers: str, count: int) -> list[str]:
    """The values of so many records that a reader of committed ones is given."""
    found: list[str] = []
    async with Consumer(
        "t",
        bootstrap_servers=servers,
        group_id="reader",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        async for record in consumer:
            found.append((record.value or b"").decode())
            if len(found) == count:
                return sorted(found)
    raise AssertionError("the consumer ended")
