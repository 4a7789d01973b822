"""A resized topic whose records were stored by this project's producer, and a file about them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.clients.admin import Admin
from anabranch.clients.producer.producer import Producer
from anabranch.clients.topic_admin import NewTopic
from tests.running import running

KEYS = 12
ROUNDS = 5
COUNTS = (3, 5, 2)


@dataclass(frozen=True)
class ResizedTopic:
    """A topic after two resizes."""

    servers: str
    name: str
    records: int
    sent: Path


async def fill(servers: str, topic: str) -> list[dict[str, object]]:
    """Send records before, between and after the resizes; returns what is stored."""
    async with Admin(servers) as admin, Producer(servers) as producer:
        await admin.create_topics([NewTopic(name=topic, partitions=COUNTS[0])])
        rows: list[dict[str, object]] = []
        for generation, count in enumerate(COUNTS):
            if generation:
                await admin.create_partitions(topic, count, allow_shrink=True)
            for sequence in range(generation * ROUNDS, (generation + 1) * ROUNDS):
                for number in range(KEYS):
                    key, headers = f"key-{number}", [("sequence", b"%d" % sequence)]
                    place = await producer.send_and_wait(topic, b"/%d" % sequence, key.encode(), headers=headers)
                    where = {"partition": place.partition, "offset": place.offset}
                    rows.append({"key": key, "sequence": sequence, **where})
    return rows


@pytest.fixture(scope="module")
def resized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResizedTopic]:
    sent = tmp_path_factory.mktemp("judged") / "stored.jsonl"
    with running("up", "--brokers", "1", "--port", "0") as ready:
        servers = ready["bootstrap"]
        sent.write_text("".join(f"{json.dumps(row)}\n" for row in asyncio.run(fill(servers, "orders"))))
        yield ResizedTopic(servers, "orders", KEYS * ROUNDS * len(COUNTS), sent)
