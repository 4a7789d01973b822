"""A ready node imports no module for a request, so no request fails when files run out.

Method: the interpreter of the node reports each import. Every API is requested in every version, with bodies that
handlers carry out, and one client of each kind works with compressed records.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.clients.admin import Admin
from anabranch.clients.connection import Connection
from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.producer.producer import Producer
from anabranch.clients.topic_admin import NewTopic
from anabranch.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.mutated_frames import RULING
from tests.broker.plausible import Plausible
from tests.protocol.messages import as_sent

ROUNDS = 3
"""Requests of each version of each API: the first is often refused by the first check."""


CLUSTER = [
    *("--brokers=2", "--kafka=4.2", "--config=super.users=User:ANONYMOUS"),
    "--config=authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a cluster in a process of its own, and the file to which its interpreter reports imports."""
    command = [sys.executable, "-X", "importtime", "-m", "anabranch.cli.main", "up", "--port=0", *CLUSTER]
    report = tmp_path / "imports"
    with report.open("w") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready"), report.read_text()[-3000:]
        yield line.removeprefix("ready bootstrap=").strip(), report
        process.terminate()
        assert process.wait(60) == 0


async def test_no_request_makes_a_ready_node_import_a_module(node: tuple[str, Path]) -> None:
    bootstrap, report = node
    before = len(report.read_text())
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name="t0", partitions=3), NewTopic(name="t1", partitions=3)])
        topics = {name: (await admin.wait_for_topic(name)).topic_id for name in ("t0", "t1")}
    await use_clients(bootstrap)
    await request_every_version(bootstrap.partition(",")[0], topics)
    lines = report.read_text()[before:].splitlines()
    assert [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")] == []


async def use_clients(bootstrap: str) -> None:
    """Store records with each codec, in a transaction too, and read them in groups of both protocols."""
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        async with Producer(bootstrap, compression_type=codec) as producer:
            await producer.send("t0", b"value" * 100, key=b"key")
    async with Producer(bootstrap, transactional_id="mine") as producer, producer.transaction():
        await producer.send("t1", b"value", key=b"key")
    for protocol in ("classic", "consumer"):
        settings: dict[str, Any] = {"group_id": f"mine-{protocol}", "group_protocol": protocol}
        async with Consumer("t0", bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings) as consumer:
            await asyncio.wait_for(consumer.getone(), 30)


async def request_every_version(address: str, topics: dict[str, bytes]) -> None:
    host, _, port = address.rpartition(":")
    making = Plausible(random.Random(1), topics)

    async def connect() -> Connection:
        return await Connection.open(host, int(port), client_id="x", request_timeout_ms=60_000)

    connection = await connect()
    served: ApiVersionsResponse = await connection.call(ApiVersionsRequest(), version=0)
    for row in HANDLERS:
        ranges = [one for one in served.api_keys if one.api_key == row.api.key and row.name not in RULING]
        for version in [v for one in ranges for v in range(one.min_version, one.max_version + 1)] * ROUNDS:
            message = as_sent(making.request(row.api.request), version)
            if isinstance(message, ConsumerGroupHeartbeatRequest) and version:
                message.subscribed_topic_regex = "t.*"
            if row.name == "Produce":
                message.acks = 1
            try:
                making.learn(await connection.call(message, version=version, timeout_ms=60_000))
            except ConnectionError:
                connection = await connect()
    await connection.close()
