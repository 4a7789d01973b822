"""The cost of idle partitions for written ones: one producer with acks=all, beside an increasing number of them.

A fresh cluster of three brokers runs in its own process for each size. Six connections write to six partitions of three
replicas, each with one small request at a time; the other partitions are empty. The figures are requests per second,
the cluster's processor time per request, the same while consumers follow all partitions in one fetch session per broker
(KIP-227), and the idle cluster's processor use.

Sizes take turns, because a shared machine has good and bad minutes; the figures are medians, with the range of the
rates.

    python -m benchmarks.beside_idle [--partitions 6 1000 4000 10000] [--seconds 10] [--rounds 3]
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anabranch import Admin, NewTopic
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataResponse
from anabranch.protocol.host_port import parse_host_port
from anabranch.protocol.records.batch import iter_batches
from benchmarks.latency import Line, leader_of, small_produce
from benchmarks.peers import Peer, running
from benchmarks.report import Figure, curve, run_benchmark, table, working

PARTITIONS: Final = (6, 1000, 4000, 10000)
BUSY: Final = 6
REPLICAS: Final = 3
IN_A_TOPIC: Final = 500
SECONDS: Final = 10.0
ROUNDS: Final = 3
SETTLED_S: Final = 5.0
LOSS_MAX: Final = 0.1
IDLE_AIM: Final = 0.01


@dataclass(frozen=True, slots=True)
class Beside:
    """The figures of one size."""

    per_s: float
    processor_ms: float
    """Of the cluster, per request."""
    read_along_ms: float
    """The same while consumers follow all partitions."""
    idle: float
    """The share of one core that the idle cluster uses."""


async def keep_writing(bootstrap: str, topic: str, seconds: float) -> int:
    """Count the responses while each partition's connection sends one request after the other."""
    end_s = time.perf_counter() + seconds

    async def write(partition: int) -> int:
        connection = await Connection.open(*leader_of(bootstrap, f"{topic}-{partition}"), client_id="beside")
        message = small_produce(f"{topic}-{partition}", acks=-1)
        count = 0
        while time.perf_counter() < end_s:
            answer = await connection.call(message)
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                raise RuntimeError(f"a record was refused with error {code}")
            count += 1
        await connection.close()
        return count

    return sum(await asyncio.gather(*(write(partition) for partition in range(BUSY))))


async def read_along(bootstrap: str) -> list[asyncio.Task[None]]:
    """Follow all partitions, with one fetch session at each broker that leads any."""
    host, port = parse_host_port(bootstrap.split(",")[0])
    line = Line(host, int(port))
    found: MetadataResponse = line.call(MetadataRequest(topics=None))
    line.close()
    readers = []
    for broker in found.brokers:
        led = {
            topic.name or "": [one.partition_index for one in topic.partitions if one.leader_id == broker.node_id]
            for topic in found.topics
        }
        if not any(led.values()):
            continue
        connection = await Connection.open(broker.host, broker.port, client_id="reader")
        first: FetchResponse = await connection.call(
            fetch_request({(t, i): 0 for t in led for i in led[t]}), version=12
        )
        at_end = {
            (topic.topic, row.partition_index): row.high_watermark
            for topic in first.responses
            for row in topic.partitions
        }
        readers.append(asyncio.create_task(keep_reading(connection, first.session_id, at_end)))
    return readers


async def keep_reading(connection: Connection, session_id: int, offsets: dict[tuple[str, int], int]) -> None:
    """Fetch in a session without end, naming only partitions with new offsets."""
    named = {place: offset for place, offset in offsets.items() if offset}
    epoch = 1
    try:
        while True:
            request = fetch_request(named, session_id, epoch)
            answer: FetchResponse = await connection.call(request, version=12)
            if answer.error_code:
                raise RuntimeError(f"the session ended with error {answer.error_code}")
            epoch += 1
            named = {}
            for topic in answer.responses:
                for row in topic.partitions:
                    for _, header in iter_batches(row.records or b""):
                        named[topic.topic, row.partition_index] = header.next_offset
    finally:
        await connection.close()


def fetch_request(offsets: dict[tuple[str, int], int], session_id: int = 0, epoch: int = 0) -> FetchRequest:
    """A Fetch that waits for half a second if it continues a session."""
    topics: dict[str, FetchTopic] = {}
    for (topic, index), offset in offsets.items():
        partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics.setdefault(topic, FetchTopic(topic=topic, partitions=[])).partitions.append(partition)
    return FetchRequest(
        max_wait_ms=500 if epoch else 0,
        min_bytes=1,
        max_bytes=1 << 20 if epoch else 1,
        session_id=session_id,
        session_epoch=epoch,
        topics=list(topics.values()),
    )


async def written(peer: Peer, seconds: float) -> tuple[float, float]:
    """Requests per second, and the cluster's milliseconds per request."""
    before_s, started_s = peer.processor_s[0], time.perf_counter()
    count = await keep_writing(peer.bootstrap, "busy", seconds)
    return count / (time.perf_counter() - started_s), (peer.processor_s[0] - before_s) * 1000 / count


async def beside(peer: Peer, partitions: int, seconds: float) -> Beside:
    """Create the partitions, measure the idle cluster, then write."""
    async with Admin(peer.bootstrap, request_timeout_ms=600_000) as admin:
        for number in range(BUSY):
            await admin.create_topics([NewTopic(name=f"busy-{number}", partitions=1, replication_factor=REPLICAS)])
        for start in range(BUSY, partitions, IN_A_TOPIC):
            count = min(IN_A_TOPIC, partitions - start)
            await admin.create_topics([NewTopic(name=f"idle-{start}", partitions=count, replication_factor=REPLICAS)])
    await keep_writing(peer.bootstrap, "busy", 1.0)
    await asyncio.sleep(SETTLED_S)
    before_s, _ = peer.processor_s
    await asyncio.sleep(seconds)
    idle = (peer.processor_s[0] - before_s) / seconds
    per_s, processor_ms = await written(peer, seconds)
    readers = await read_along(peer.bootstrap)
    await keep_writing(peer.bootstrap, "busy", 1.0)
    _, read_along_ms = await written(peer, seconds)
    for reader in readers:
        if reader.done():
            reader.result()
        reader.cancel()
    await asyncio.wait(readers)
    return Beside(per_s, processor_ms, read_along_ms, idle)


def measure(partitions: Sequence[int] = PARTITIONS, seconds: float = SECONDS, rounds: int = ROUNDS) -> list[Figure]:
    looks: dict[int, list[Beside]] = {count: [] for count in partitions}
    with working("writing beside idle partitions") as status:
        for number in range(rounds):
            for count in partitions:
                status.update(f"round {number + 1} of {rounds}: writing to {BUSY} of {count} partitions")
                with running("anabranch") as peer:
                    looks[count].append(asyncio.run(beside(peer, count, seconds)))
    found = {count: middle(ones) for count, ones in looks.items()}
    table(
        f"{BUSY} partitions are written to, acks=all, {REPLICAS} replicas, beside idle ones; medians of {rounds}",
        *("partitions", "requests/s", "range", "processor for each, ms", "and read along, ms", "one core while idle"),
        rows=[
            (
                f"{count}",
                f"{one.per_s:.0f}",
                f"{min(look.per_s for look in looks[count]):.0f}-{max(look.per_s for look in looks[count]):.0f}",
                *(f"{each:.2f}" for each in (one.processor_ms, one.read_along_ms)),
                f"{100 * one.idle:.1f} %",
            )
            for count, one in found.items()
        ],
        note="processor time says more than the rate on a machine that others use, too",
    )
    curve(
        "processor time for each request",
        [(f"{count}", one.processor_ms) for count, one in found.items()],
        unit="ms",
    )
    return figures(found)


def middle(looks: Sequence[Beside]) -> Beside:
    """The median of each figure."""
    return Beside(*(statistics.median(ones) for ones in zip(*map(dataclasses.astuple, looks), strict=True)))


def figures(found: dict[int, Beside]) -> list[Figure]:
    """Processor time beside many idle partitions relative to none, and the idle cluster's use."""
    few = found[min(found)]
    lines = []
    for count, one in found.items():
        if one is not few:
            for what, many_ms, few_ms in (
                ("a request", one.processor_ms, few.processor_ms),
                ("a request, and reading what it wrote,", one.read_along_ms, few.read_along_ms),
            ):
                lines.append(
                    Figure(
                        f"processor time for {what} beside {count} partitions",
                        f"+{100 * LOSS_MAX:.0f} % at most",
                        f"{many_ms:.2f} ms",
                        f"beside none {few_ms:.2f} ms",
                        many_ms <= (1 + LOSS_MAX) * few_ms,
                    )
                )
            lines.append(
                Figure(
                    f"requests a second beside {count} partitions",
                    f"-{100 * LOSS_MAX:.0f} % at most",
                    f"{one.per_s:.0f}",
                    f"beside none {few.per_s:.0f}",
                    one.per_s >= (1 - LOSS_MAX) * few.per_s,
                )
            )
            lines.append(
                Figure(
                    f"one core while {count} partitions are idle",
                    f"{100 * IDLE_AIM:.0f} % at most",
                    f"{100 * one.idle:.1f} %",
                    f"{min(found)} partitions {100 * few.idle:.1f} %",
                    one.idle <= IDLE_AIM,
                )
            )
    return lines


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        partitions=(PARTITIONS, "how many there are in all"),
        seconds=(SECONDS, "of each measurement"),
        rounds=(ROUNDS, "how often each size is measured"),
    )


if __name__ == "__main__":
    sys.exit(main())
