"""Latency of one small request with fifty connections that each have one in flight: median and 99th percentile.

The load is that of `small_requests`: the same bytes on each connection, as soon as the response has arrived. A request
waits for the other 49, so the cost of one request decides its latency: the table also shows fifty times the time
between two responses, which is the mean latency. All responses are decoded afterwards, and their error codes are
checked. The clusters, of three brokers each, alternate. Kafka is a peer where its jars are (ANABRANCH_KAFKA_JARS, see
`tests/differential/kafka_server.py`); an uncounted round warms it up.

    python -m benchmarks.tails [--rounds 5] [--seconds 2]
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

from anabranch.protocol import codec
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataResponse
from anabranch.protocol.apis.produce import ProduceRequest, ProduceResponse
from anabranch.protocol.error_codes import error_codes
from benchmarks.latency import VERSIONS, leader_of
from benchmarks.peers import produce_one, running
from benchmarks.report import Figure, median, percentile, run_benchmark, table, working
from benchmarks.small_requests import ALONE, CONNECTIONS, COPIED, REQUESTS, ROUNDS, SECONDS, Load
from benchmarks.throughput import create_topic
from tests.differential.kafka_server import KafkaCluster, why_absent

WARM_UP_S: Final = 0.5
ANSWERS: Final[dict[type[Any], type[Any]]] = {ProduceRequest: ProduceResponse, MetadataRequest: MetadataResponse}
KINDS: Final = {
    "Produce, acks=1": "Produce, acks=1, one replica",
    "Produce, acks=all": "Produce, acks=all, three replicas",
    "Metadata": "Metadata",
}
Row = tuple[float, float, float]
"""p50, p99, and fifty times the time between two responses; in ms."""


def taken(bootstrap: str, what: str, seconds: float) -> Row:
    """Run one round. Raises RuntimeError if the cluster has refused a request."""
    topic, message = REQUESTS[KINDS[what]]
    load = Load(leader_of(bootstrap, topic), message)
    try:
        load.keep_up(WARM_UP_S)
        taken_ms, answers = load.keep_time(seconds)
    finally:
        load.close()
    kind, version = ANSWERS[type(message)], VERSIONS[type(message)]
    for answer in answers:
        decoded, _ = codec.decode(kind, version, answer, 4)
        if any(error_codes(decoded, kind)):
            raise RuntimeError(f"{what} was refused: {decoded}")
    return percentile(taken_ms, 50), percentile(taken_ms, 99), CONNECTIONS * seconds * 1e3 / len(taken_ms)


def compare(peers: dict[str, str], rounds: int, seconds: float) -> dict[tuple[str, str], list[Row]]:
    """Run rounds of all clusters alternately; `peers`: name -> bootstrap servers."""
    for bootstrap in peers.values():
        for topic, replicas in ((ALONE, 1), (COPIED, 3)):
            create_topic(bootstrap, topic, replicas)
            produce_one(bootstrap, topic)
    found: dict[tuple[str, str], list[Row]] = {(what, name): [] for what in KINDS for name in peers}
    for number in range(rounds + 1):
        for (what, name), rows in found.items():
            row = taken(peers[name], what, seconds)
            if number:
                rows.append(row)
    return found


async def beside_kafka(bootstrap: str, rounds: int, seconds: float) -> dict[tuple[str, str], list[Row]]:
    """Run the rounds with Kafka as a peer, if it is installed."""
    peers = {"anabranch": bootstrap}
    if why_absent() is not None:
        return await asyncio.to_thread(compare, peers, rounds, seconds)
    async with KafkaCluster(3) as kafka:
        return await asyncio.to_thread(compare, {**peers, "kafka": kafka.bootstrap_servers}, rounds, seconds)


def measure(rounds: int = ROUNDS, seconds: float = SECONDS) -> list[Figure]:
    with working("tails"), running("anabranch") as peer:
        found = asyncio.run(beside_kafka(peer.bootstrap, rounds, seconds))
    middle = {one: tuple(median(column) for column in zip(*rows, strict=True)) for one, rows in found.items()}
    table(
        f"one small request, {CONNECTIONS} connections with one under way each, ms, medians of {rounds} rounds",
        *("", "p50", "p99", "p99, from", "to", f"{CONNECTIONS} x the time between answers"),
        rows=[
            (
                f"{what}: {name}",
                *(f"{one:.2f}" for one in middle[what, name][:2]),
                *(f"{pick(row[1] for row in rows):.2f}" for pick in (min, max)),
                f"{middle[what, name][2]:.2f}",
            )
            for (what, name), rows in found.items()
        ],
        note=why_absent() or "",
    )
    figures = []
    for what in KINDS:
        own, kafka = middle[what, "anabranch"], middle.get((what, "kafka"))
        figures.append(
            Figure(
                f"{what}, p99 at {CONNECTIONS} connections",
                "below Kafka's",
                f"{own[1]:.1f} ms (p50 {own[0]:.1f})",
                "not here: Kafka" if kafka is None else f"Kafka {kafka[1]:.1f} ms (p50 {kafka[0]:.1f})",
                None if kafka is None else own[1] < kafka[1],
            )
        )
    return figures


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(__doc__, measure, arguments, rounds=(ROUNDS, "measured rounds"), seconds=(SECONDS, "of each"))


if __name__ == "__main__":
    sys.exit(main())
