"""What real producers and consumers of a real cluster leave in the topics, judged by the checks that Spark runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from clients import Consumer, Producer
from clients.consumer.delivery import ConsumerRecord
from protocol import audit as wire
from spark_jobs.bucket import Bucket
from spark_jobs.checks import check
from spark_jobs.pending import Stored
from spark_jobs.stages import tallies_of
from tests.spark_jobs.histories import Audited, read
from tests.spark_jobs.live import LiveCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with LiveCluster(1) as live:
        yield live


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


def judge(live: LiveCluster, topic: str, expect: str, group: str, isolation_level: str = "read_committed") -> Audited:
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
        for violation in check(buckets[number], read(values[number]), _as_stored(stored[number]), expect)
    ]
    ended = [bucket.finish(expect, [group]) for bucket in buckets.values()]
    rows = [{"tallies": bucket.count()} for bucket in buckets.values()] + [{"tallies": more} for _, more in ended]
    violations += [violation for found, _ in ended for violation in found]
    return Audited(violations, tallies_of(rows), sum(bucket.keys for bucket in buckets.values()))


def _as_stored(records: list[ConsumerRecord]) -> Stored:
    marks = [next(value for name, value in reversed(one.headers) if name == wire.HEADER) or b"" for one in records]
    return Stored(
        partition=np.array([one.partition for one in records], np.int64),
        offset=np.array([one.offset for one in records], np.int64),
        producer=np.array([wire.decode_header(mark)[0] for mark in marks], np.uint64),
        sequence=np.array([wire.decode_header(mark)[1] for mark in marks], np.int64),
        fingerprint=np.array([wire.fingerprint(one.value) for one in records], np.uint64),
        keys=[one.key for one in records],
    )


def test_a_copier_that_is_killed_behind_its_commit_has_told_what_it_was_given(cluster: LiveCluster) -> None:
    for topic in ("orders", "invoices", "orders-audit"):
        cluster.create(topic, 1)
    cluster.run(_fill(cluster, "orders", 20))
    words = [cluster.servers, "orders", "invoices", "orders-audit", "10"]
    child = subprocess.run(
        [sys.executable, "-m", "tests.spark_jobs.copier", *words],
        capture_output=True,
        text=True,
        timeout=60,
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


async def _fill(live: LiveCluster, topic: str, count: int) -> None:
    async with Producer(live.servers, audit=True) as producer:
        for number in range(count):
            await producer.send(topic, key=b"k%d" % (number % 5), value=b"%d" % number)
