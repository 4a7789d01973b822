"""Other clients against `anabranch up`: produce, consume in a group, share the work, resume from commits."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.interop.other_clients import CLIENTS, Confluent, OtherClient, in_key_order, numbered, within

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """The bootstrap servers of a single-process cluster of three brokers."""
    command = [sys.executable, "-m", "anabranch.main", "up", "--port", "0", "--config", "num.partitions=3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready bootstrap="), line
        yield line.strip().partition("bootstrap=")[2]
        process.terminate()
        assert process.wait(10) == 0


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest) -> tuple[str, OtherClient]:
    return request.param, CLIENTS[request.param]


def test_a_topic_is_created_on_first_use_and_read_back_in_order(servers: str, client: tuple[str, OtherClient]) -> None:
    name, other = client
    topic, acked, seen = f"first-use-{name}", [], []  # type: str, list[Any], list[Any]
    other.produce(servers, topic, numbered(500), acked)
    assert sorted(acked) == sorted(numbered(500))
    other.consume(servers, topic, f"group-{name}", seen, within(40, lambda: len(seen) >= 500))
    assert sorted(seen) == sorted(acked)
    assert in_key_order(seen)


def test_two_members_share_a_group(servers: str, client: tuple[str, OtherClient]) -> None:
    """Goal: both members get partitions. Method: records keep coming until both have seen some and all are seen."""
    name, other = client
    topic = f"shared-{name}"
    acked: list[Any] = []
    halves: tuple[list[Any], list[Any]] = ([], [])
    other.produce(servers, topic, numbered(10), acked)  # the topic is there when they join
    all_sent = threading.Event()

    def shared() -> bool:
        return all_sent.is_set() and all(halves) and {*halves[0], *halves[1]} >= set(acked)

    done = within(40, shared)

    with ThreadPoolExecutor(2) as pool:
        members = [pool.submit(other.consume, servers, topic, f"shared-{name}", half, done) for half in halves]
        # The first member learns that it has to share with its next heartbeat, seconds later.
        both_seen = within(30, lambda: all(halves) or any(member.done() for member in members))
        while not both_seen():
            other.produce(servers, topic, [(b"%d" % n, b"%d" % len(acked)) for n in range(50)], acked)
            all_sent.wait(0.1)
        all_sent.set()
        for member in members:
            member.result(60)
    assert shared(), [len(half) for half in halves]


def test_a_group_resumes_where_it_committed(servers: str, client: tuple[str, OtherClient]) -> None:
    name, other = client
    topic, group = f"resumed-{name}", f"resumed-{name}"
    first: list[Any] = []
    other.produce(servers, topic, numbered(400), [])
    other.consume(servers, topic, group, first, within(40, lambda: len(first) >= 400))
    other.produce(servers, topic, [(b"late", b"late")], [])
    second: list[Any] = []
    other.consume(servers, topic, group, second, within(40, lambda: (b"late", b"late") in second))
    assert len(second) < 400, "it did not start over"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_pass_through(servers: str, compression: str) -> None:
    other, topic = Confluent(), f"compressed-{compression}"
    records = [(key, value * 50) for key, value in numbered(200)]
    acked: list[Any] = []
    other.produce(servers, topic, records, acked, compression)
    for name, reader in CLIENTS.items():
        if name == "kafka-python" and compression not in ("none", "gzip"):
            continue  # it needs further packages for the others
        seen: list[Any] = []
        reader.consume(servers, topic, f"{compression}-{name}", seen, within(40, lambda seen=seen: len(seen) >= 200))
        assert sorted(seen) == sorted(records), name
