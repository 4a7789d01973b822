"""Every plausible request gets a response, and none makes a node log a bug.

Method: connections send thousands of requests of every API that a client of the newest profile sees, made by
`plausible`, to a node whose coordinators lead everything. Each has to be answered, in whatever words; the log has no
error; then a client of every kind still does its work. ANABRANCH_PLAUSIBLE=n sends n requests, with another seed.
An answer has tagged fields of ours only if its request had one (D27).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from typing import Any

import pytest

from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.clients.admin import Admin
from anabranch.clients.connection import Connection
from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.producer.producer import Producer
from anabranch.clients.topic_admin import NewTopic
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.apis.produce import ProduceRequest
from tests.broker.plausible import Plausible
from tests.broker.test_bad_input import RULING
from tests.protocol.messages import as_sent, own_tags

CONNECTIONS = 8
REQUESTS = int(os.environ.get("ANABRANCH_PLAUSIBLE", "5000"))
SEED = time.time_ns() if "ANABRANCH_PLAUSIBLE" in os.environ else 253
ANSWER_MS = 60_000
LEFT_OUT = {*("DeleteTopics", "SaslHandshake", "SaslAuthenticate"), *RULING}
"""What would take the ground away, or begins a login."""
CLOSES = {"CreateAcls", "DeleteAcls", "DescribeAcls", "Envelope", "Produce"}
"""Where Kafka closes the connection, too: values that are none, and old versions of Produce that it only announces."""
WORDS = ("Group", "Share", "Txn", "Offset", "Fetch", "Produce", "Heartbeat")
"""In the names of the APIs that are asked most."""


async def connect(address: str) -> Connection:
    host, _, port = address.rpartition(":")
    return await Connection.open(host, int(port), client_id="x", request_timeout_ms=ANSWER_MS)


async def ask(address: str, making: Plausible, rng: random.Random) -> None:
    """Send one connection's share of the requests; each has to be answered."""
    node = await connect(address)
    served: ApiVersionsResponse = await node.call(ApiVersionsRequest(), version=0)
    ranges = {one.api_key: (one.min_version, one.max_version) for one in served.api_keys}
    rows = [row for row in HANDLERS if row.api.key in ranges and row.name not in LEFT_OUT]
    often = [row for row in rows if any(word in row.name for word in WORDS)]
    for _ in range(REQUESTS // CONNECTIONS):
        row = rng.choice(often if rng.random() < 0.85 else rows)
        first, last = ranges[row.api.key]
        version = last if rng.random() < 0.7 else rng.randint(first, last)
        request = as_sent(making.request(row.api.request), version)
        if isinstance(request, ProduceRequest) and request.acks == 0:
            await send_unanswered(address, request, version)
        else:
            try:
                answer = await node.call(request, version=version, timeout_ms=ANSWER_MS)
                making.learn(answer)
                if not any(own_tags(request, version)):
                    assert not list(own_tags(answer, version)), f"{row.name} v{version}: {request}"
            except ConnectionError:
                assert row.name in CLOSES, f"{row.name} v{version} was not answered: {request}"
                node = await connect(address)
    await node.close()


async def send_unanswered(address: str, request: ProduceRequest, version: int) -> None:
    """With acks=0 a node can only refuse by closing the connection, so this has one of its own."""
    node = await connect(address)
    node.send_oneway(request, version=version)
    await node.close()


@pytest.mark.parametrize("kafka", ["3.9", "4.2"])
async def test_plausible_requests_are_answered_without_unexpected_exceptions(
    kafka: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with Cluster(brokers=1, kafka=kafka) as cluster, Admin(cluster.bootstrap_servers) as admin:
        names = ["t0", "t1", "work"]
        await admin.create_topics([NewTopic(name=name, partitions=3) for name in names])
        topics = {name: (await admin.wait_for_topic(name)).topic_id for name in names[:2]}
        making, address = Plausible(random.Random(SEED), topics), cluster.bootstrap_servers
        await asyncio.gather(*(ask(address, making, random.Random(SEED + n)) for n in range(CONNECTIONS)))
        await work(cluster)
    bugs = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not bugs, f"seed {SEED}: {len(bugs)} errors, the first: {told(bugs[0])}"


def told(record: logging.LogRecord) -> str:
    return logging.Formatter().format(record)


async def work(cluster: Cluster) -> None:
    """A client of every kind does what it is for."""
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="mine")
    async with producer, producer.transaction():
        await producer.send("work", b"value", key=b"key")
    for protocol in ("classic", "consumer"):
        consumer: Any = Consumer(
            "work",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=f"mine-{protocol}",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with consumer:
            assert (await asyncio.wait_for(consumer.getone(), 30)).value == b"value"
