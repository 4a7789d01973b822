"""@platformatic/kafka, which reads the number of tagged fields as their length and fails at any tagged field.

It works with topics of several partitions, also after a resize, because its answers have none (D27).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import Final

import pytest

from anabranch import Admin, Cluster, NewTopic
from tests.interop.clients import CACHE, HERE
from tests.interop.driving import PATIENCE_S

pytestmark = pytest.mark.interop

COUNT: Final = 50


def why_missing() -> str:
    """Return what is missing on this machine, or an empty text."""
    if shutil.which("node") is None:
        return "no node here"
    return "" if (CACHE / "platformatic" / "node_modules").is_dir() else "not installed: run `make interop`"


def run(servers: str, topic: str) -> list[list[str]]:
    """Send records and read them; returns keys and values."""
    words = ["node", str(HERE / "drivers" / "platformatic" / "driver.mjs"), servers, topic, str(COUNT)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    read: list[list[str]] = json.loads(ran.stdout)
    return read


async def test_records_of_resized_topic_are_sent_and_read() -> None:
    if reason := why_missing():
        pytest.skip(f"@platformatic/kafka NOT TRIED: {reason}")
    async with Cluster(3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="orders", partitions=2, replication_factor=3)])
        await admin.wait_for_topic("orders")
        await admin.create_partitions("orders", 4)
        await admin.wait_until(lambda seen: len(seen.topics["orders"].partitions) == 4, "orders")
        read = await asyncio.to_thread(run, cluster.bootstrap_servers, "orders")
    assert sorted(int(value) for _, value in read) == list(range(COUNT))
    for key in {key for key, _ in read}:
        values = [int(value) for one, value in read if one == key]
        assert values == sorted(values), key
