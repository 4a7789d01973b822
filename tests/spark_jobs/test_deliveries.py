"""Audit topics of real producers and consumers, judged by Spark's checks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from anabranch import Consumer, Producer
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.protocol import audit as wire
from anabranch.protocol import audit_mark
from anabranch.protocol.errors import KafkaError
from anabranch.spark_jobs import events
from anabranch.spark_jobs.bucket import Bucket
from anabranch.spark_jobs.checks import check
from anabranch.spark_jobs.pending import Stored
from anabranch.spark_jobs.stages import tallies_of
from anabranch.spark_jobs.verdict import Violation
from anabranch.spark_jobs.verdict import judge as verdict_of
from tests.spark_jobs.live import LiveCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with LiveCluster(1) as live:
        yield live


class Found(NamedTuple):
    """What the checks make of two topics."""

    violations: list[Violation]
    verdict: dict[str, int]


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """The next so many records."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        batches = await consumer.getmany(timeout_ms=1000, max_records=count - len(found))
        found += [record for records in batches.values() for record in records]
    return found


def everything(live: LiveCluster, topic: str, isolation_level: str) -> list[ConsumerRecord]:
    """All that a topic holds for such a reader."""

    async def read() -> list[ConsumerRecord]:
        async with Consumer(
            topic, bootstrap_servers=live.servers, auto_offset_reset="earliest", isolation_level=isolation_level
        ) as consumer:
            ends = await consumer.end_offsets(consumer.assignment())
            found: list[ConsumerRecord] = []
            while any(consumer.position(one) < end for one, end in ends.items()):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found += records
            return found

    return live.run(read())


def judge(live: LiveCluster, topic: str, expect: str, group: str, isolation_level: str = "read_committed") -> Found:
    """What the checks make of an audit topic and the audited one."""
    buckets: defaultdict[int, Bucket] = defaultdict(Bucket)
    values, stored = defaultdict[int, list[bytes]](list), defaultdict[int, list[ConsumerRecord]](list)
    for record in everything(live, topic, isolation_level):
        values[(record.key or b"")[0]].append(record.value or b"")
    for record in everything(live, expect, isolation_level):
        stored[wire.bucket_of(wire.key_hash(record.key, record.partition))].append(record)
    violations = [
        violation
        for number in values.keys() | stored.keys()
        for violation in check(
            buckets[number],
            events.read(values[number], [None] * len(values[number])),
            _as_stored(stored[number]),
            expect,
        )
    ]
    ended = [bucket.finish(expect, [group]) for bucket in buckets.values()]
    rows = [{"tallies": bucket.count()} for bucket in buckets.values()] + [{"tallies": more} for _, more in ended]
    violations += [violation for found, _ in ended for violation in found]
    return Found(violations, verdict_of(tallies_of(rows), keys=sum(bucket.keys for bucket in buckets.values())))


def _as_stored(records: list[ConsumerRecord]) -> Stored:
    marks = [
        next(value for name, value in reversed(one.headers) if name == audit_mark.HEADER) or b"" for one in records
    ]
    return Stored(
        partition=np.array([one.partition for one in records], np.int64),
        offset=np.array([one.offset for one in records], np.int64),
        producer=np.array([audit_mark.decode(mark)[0] for mark in marks], np.uint64),
        sequence=np.array([audit_mark.decode(mark)[1] for mark in marks], np.int64),
        fingerprint=np.array([wire.fingerprint(one.value) for one in records], np.uint64),
        keys=[one.key for one in records],
    )


def test_copier_killed_after_its_commit_has_reported_its_deliveries(cluster: LiveCluster) -> None:
    for topic in ("orders", "invoices", "orders-audit"):
        cluster.create(topic, 1)
    cluster.run(_fill(cluster, "orders", 20))
    words = [cluster.servers, "orders", "invoices", "orders-audit", "10"]
    child = subprocess.run(
        [sys.executable, "-m", "tests.spark_jobs.copier", *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr

    async def successor() -> list[int]:
        async with Consumer(
            "orders",
            bootstrap_servers=cluster.servers,
            group_id="copiers",
            group_instance_id="copier",
            auto_offset_reset="earliest",
            audit="orders-audit",
        ) as consumer:
            return [one.offset for one in await take(consumer, 10)]

    assert cluster.run(successor()) == list(range(10, 20))
    found = judge(cluster, "orders-audit", "orders", "copiers")
    assert [one.line() for one in found.violations] == []
    assert (found.verdict["delivered"], found.verdict["redelivered"]) == (20, 0)


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_not_lost(cluster: LiveCluster, isolation_level: str) -> None:
    topic = cluster.create(f"aborted-{isolation_level}", 2)
    cluster.create(f"{topic}-audit", 1)

    async def write() -> None:
        async with Producer(cluster.servers, transactional_id=topic, audit=True) as producer:
            for number in range(12):
                await producer.begin_transaction()
                for key in (b"k", b"k", b"j%d" % (number % 3)):
                    await producer.send(topic, key=key, value=b"%d" % number)
                await producer.flush()
                await (producer.abort_transaction() if number % 4 == 2 else producer.commit_transaction())
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, key=b"k", value=b"never leaves")
                    _ = 1 / 0
            async with producer.transaction():
                await producer.send(topic, key=b"k", value=b"last")

    cluster.run(write())
    count = 3 * (12 if isolation_level == "read_uncommitted" else 9) + 1
    _hand_out(cluster, topic, count, isolation_level)
    found = judge(cluster, f"{topic}-audit", topic, "readers", isolation_level)
    assert [one.line() for one in found.violations] == []
    assert found.verdict["delivered"] == count
    # k is cut four times, j0 once, and j2 before its first record that was committed.
    assert found.verdict["keys"] == (10 if isolation_level == "read_uncommitted" else 9)


def test_refused_records_are_not_lost(cluster: LiveCluster) -> None:
    topic = cluster.create("refused", 1)
    cluster.create("refused-audit", 1)

    async def write() -> int:
        receipts = []
        async with Producer(cluster.servers, audit=True, batch_bytes=1) as producer:
            for _ in range(3):
                for value in (b"before", bytes(2_000_000), *[b"behind"] * 8):
                    receipts.append(await producer.send(topic, key=b"k", value=value))
                await producer.flush()
        return sum(isinstance(one, KafkaError) for one in await asyncio.gather(*receipts, return_exceptions=True))

    assert cluster.run(write()) == 3
    _hand_out(cluster, topic, 27, "read_committed")
    found = judge(cluster, "refused-audit", topic, "readers")
    assert [one.line() for one in found.violations] == []
    assert found.verdict["delivered"] == 27


def _hand_out(live: LiveCluster, topic: str, count: int, isolation_level: str) -> None:
    async def read() -> None:
        async with Consumer(
            topic,
            bootstrap_servers=live.servers,
            group_id="readers",
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
            audit=f"{topic}-audit",
        ) as consumer:
            await take(consumer, count)

    live.run(read())


async def _fill(live: LiveCluster, topic: str, count: int) -> None:
    async with Producer(live.servers, audit=True) as producer:
        for number in range(count):
            await producer.send(topic, key=b"k%d" % (number % 5), value=b"%d" % number)
