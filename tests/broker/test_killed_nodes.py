"""Nodes killed by SIGKILL under a producer's load: acknowledged records exist."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.cluster.processes import ProcessCluster

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
PARTITIONS = 3
PROPERTIES = {
    "log.segment.bytes": "20000",
    "min.insync.replicas": "2",
    "log.flush.interval.messages": "500",
    "zookeeper.session.timeout.ms": "2000",
}


class Writer:
    """Sends numbered records until it is stopped, and keeps the acknowledged ones."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: list[bytes] = []
        self.stop = asyncio.Event()

    async def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            values = [b"%d" % (number + one) for one in range(50)]
            number += 50
            sent = [await self._producer.send("t", value, key=value) for value in values]
            for value, outcome in zip(values, await asyncio.gather(*sent, return_exceptions=True), strict=True):
                if not isinstance(outcome, BaseException):
                    self.acknowledged.append(value)

    async def reach(self, count: int) -> None:
        """Wait for so many more acknowledgements."""
        goal = len(self.acknowledged) + count
        while len(self.acknowledged) < goal:  # noqa: ASYNC110 -- the producer sets no event of ours
            await asyncio.sleep(0.01)


async def everything(bootstrap_servers: str, wanted: list[bytes]) -> Counter[bytes | None]:
    """All values of the topic, up to its present end; after a minute without the last of them, what there was."""
    found: Counter[bytes | None] = Counter()
    missing = set(wanted)
    async with Consumer(
        "t", bootstrap_servers=bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                while missing or any(consumer.position(one) < consumer.highwater(one) for one in consumer.assignment()):
                    records = [one for some in (await consumer.getmany(timeout_ms=700)).values() for one in some]
                    found.update(record.value for record in records)
                    missing.difference_update(found)
    return found


async def test_acknowledged_records_survive_a_kill_of_every_node() -> None:
    async with (
        asyncio.timeout(200),
        ProcessCluster(3, controllers=1, zookeeper="local", properties=PROPERTIES) as cluster,
    ):
        async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
            await admin.create_topics([NewTopic(name="t", partitions=PARTITIONS, replication_factor=3)])
            writer = Writer(producer)
            writing = asyncio.create_task(writer.run())
            for node_id in (1, 2):
                await writer.reach(500)
                await cluster.kill(node_id)
                await writer.reach(300)
                await cluster.restart(node_id)
                await admin.wait_for_topic("t", replicas=3)
            await writer.reach(500)
            await asyncio.gather(*(node.kill() for node in cluster.brokers))
            await asyncio.gather(*(cluster.restart(node.node_id) for node in cluster.brokers))
            await cluster.wait_brokers(3)
            await writer.reach(300)
            writer.stop.set()
            await writing
        found = await everything(cluster.bootstrap_servers, writer.acknowledged)
        assert len(writer.acknowledged) > 2000
        assert [value for value in writer.acknowledged if found[value] != 1] == []
