"""The pytest plugin, as another project would use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

THEIR_INI = """\
[pytest]
anabranch_brokers = 2
anabranch_properties =
    num.partitions=5
"""
THEIR_TEST = """\
from confluent_kafka import Producer

def test_their_code(anabranch_cluster):
    assert anabranch_cluster.bootstrap_servers.count(":") == 2
    producer = Producer({"bootstrap.servers": anabranch_cluster.bootstrap_servers})
    sent = []
    producer.produce("orders", b"x", on_delivery=lambda error, message: sent.append((error, message.offset())))
    assert producer.flush(60) == 0
    assert sent == [(None, 0)]
    assert len(producer.list_topics("orders").topics["orders"].partitions) == 5

def test_their_cluster_breaks_and_mends(anabranch_cluster):
    topic = anabranch_cluster.topic(partitions=2, retention_ms="60000")
    anabranch_cluster.wait_for(topic=topic, isr="1,2")
    with anabranch_cluster.nodes[2].killed():
        anabranch_cluster.wait_for(topic=topic, isr="1")
    anabranch_cluster.wait_for(topic=topic, isr="1,2", node=2)
"""
THEIR_ASYNCHRONOUS_TEST = """\
import pytest
from anabranch import Admin

{mark}
async def test_their_asynchronous_code(anabranch_cluster):
    async with Admin(anabranch_cluster.bootstrap_servers) as admin:
        assert len((await admin.describe_cluster()).brokers) == 2
"""


@pytest.mark.parametrize(
    ("words", "mark"),
    [
        (("-p", "no:asyncio"), None),
        (("--asyncio-mode=strict",), "@pytest.mark.asyncio"),
        (("--asyncio-mode=auto",), ""),
    ],
    ids=["without pytest-asyncio", "with its strict mode", "with its auto mode"],
)
def test_a_project_gets_a_live_endpoint_from_the_fixture(
    words: tuple[str, ...], mark: str | None, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text(THEIR_INI)
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    if mark is not None:
        (tmp_path / "test_asynchronous.py").write_text(THEIR_ASYNCHRONOUS_TEST.format(mark=mark))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{2 if mark is None else 3} passed" in done.stdout
