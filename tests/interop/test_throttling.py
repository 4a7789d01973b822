"""librdkafka reports throttling by callback and statistics as soon as a quota is set."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from anabranch.protocol.apis.describe_client_quotas import EntityData
from tests.interop.other_clients import within

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]

TOPIC = "t"
LIMIT = 50_000


async def limit(cluster: Cluster, key: str) -> None:
    """Set a limit for one client id."""
    connection = await Connection.open("127.0.0.1", cluster.nodes[1].port, client_id="admin")
    entity = [EntityData(entity_type="client-id", entity_name="mine")]
    entry = EntryData(entity=entity, ops=[OpData(key=key, value=float(LIMIT), remove=False)])
    response = await connection.call(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    assert response.entries[0].error_code == 0
    await connection.close()


def watched() -> tuple[dict[str, Any], list[float], list[int]]:
    """Settings with callbacks, the callback's throttle time (s), and that of the statistics (ms)."""
    reported: list[float] = []
    counted: list[int] = []

    def statistics(text: str) -> None:
        counted.extend(broker["throttle"]["max"] for broker in json.loads(text)["brokers"].values())

    settings = {
        "client.id": "mine",
        "throttle_cb": lambda event: reported.append(event.throttle_time),
        "statistics.interval.ms": 200,
        "stats_cb": statistics,
    }
    return settings, reported, counted


def use(poll: Callable[[], None], told: list[float], counted: list[int], seconds: float) -> bool:
    """Go on until both have been heard, or the time is up."""
    waiting = within(seconds, lambda: bool(told) and max(counted, default=0) > 0)
    while not waiting():
        poll()
    return bool(told) and max(counted, default=0) > 0


def producing(servers: str, seconds: float) -> tuple[bool, float, int]:
    """Produce all the time."""
    from confluent_kafka import Producer

    settings, told, counted = watched()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1} | settings)

    def poll() -> None:
        producer.produce(TOPIC, value=bytes(20_000))
        producer.poll(0.01)

    heard = use(poll, told, counted, seconds)
    producer.purge()
    producer.flush(5)
    return heard, max(told, default=0), max(counted, default=0)


def consuming(servers: str, seconds: float) -> tuple[bool, float, int]:
    """Read the topic again and again."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings, told, counted = watched()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "fetch.wait.max.ms": 50} | settings)
    beginning = [TopicPartition(TOPIC, 0, OFFSET_BEGINNING)]
    consumer.assign(beginning)
    count = 0

    def poll() -> None:
        nonlocal count
        count += consumer.poll(0.05) is not None
        if count >= 40:
            count = 0
            consumer.assign(beginning)

    heard = use(poll, told, counted, seconds)
    consumer.close()
    return heard, max(told, default=0), max(counted, default=0)


@pytest.mark.parametrize(("work", "key"), [(producing, "producer_byte_rate"), (consuming, "consumer_byte_rate")])
async def test_throttled_client_reports_throttle_time(work: Callable[[str, float], Any], key: str) -> None:
    async with Cluster(brokers=1) as cluster, asyncio.timeout(60):
        servers = cluster.bootstrap_servers
        heard, _, _ = await asyncio.to_thread(work if work is producing else producing, servers, 1.5)
        assert not heard, "there is no limit yet"
        await limit(cluster, key)
        heard, told_s, counted_ms = await asyncio.to_thread(work, servers, 30)
        assert heard and told_s > 0 and counted_ms > 0
