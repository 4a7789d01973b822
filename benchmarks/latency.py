"""Latency of one small request over a socket: Produce with acks=1 and Fetch, one at a time on one connection.

The same bytes go to both clusters through the same blocking socket: the client's own part is the same, and small.

    python -m benchmarks.latency [--requests 3000]
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from typing import Any, Final

from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from anabranch.protocol.connection import ClientConnection
from anabranch.protocol.host_port import parse_host_port
from anabranch.protocol.records.batch_builder import BatchBuilder
from benchmarks.peers import COMMANDS, produce_one, running
from benchmarks.report import Figure, percentile, summary, table, times, working

TOPIC: Final = "latency"
VERSIONS: Final = {MetadataRequest: 4, ProduceRequest: 8, FetchRequest: 11}
REQUESTS: Final = 3000
PERCENTS: Final = (50, 95, 99)


class Line:
    """A blocking connection that sends one request and waits for its response."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._core = ClientConnection("benchmark")

    def call(self, message: Any) -> Any:
        """Send a request; returns the response."""
        _, chunks = self._core.request(message, VERSIONS[type(message)])
        self._socket.sendall(b"".join(bytes(chunk) for chunk in chunks))
        while not (answers := self._core.receive(self._socket.recv(1 << 16))):
            pass
        return answers[0][1]

    def times_us(self, message: Any, count: int) -> list[float]:
        """Microseconds of each of `count` round trips with the same bytes."""
        _, chunks = ClientConnection("benchmark").request(message, VERSIONS[type(message)])
        frame = b"".join(bytes(chunk) for chunk in chunks)
        send, receive, clock = self._socket.sendall, self._socket.recv_into, time.perf_counter
        buffer = bytearray(1 << 16)
        view = memoryview(buffer)
        taken = []
        for _ in range(count):
            start_s = clock()
            send(frame)
            got = receive(buffer)
            while got < 4 or got < 4 + int.from_bytes(buffer[:4]):
                got += receive(view[got:])
            taken.append((clock() - start_s) * 1e6)
        return taken

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def small_produce(topic: str, acks: int = 1) -> ProduceRequest:
    builder = BatchBuilder()
    builder.append(b"key", bytes(100), (), 1_700_000_000_000)
    data = PartitionProduceData(index=0, records=builder.build())
    return ProduceRequest(acks=acks, timeout_ms=30000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def small_fetch(topic: str) -> FetchRequest:
    """A Fetch of about one kilobyte from the beginning of a partition that has records."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1024)
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


def leader_of(bootstrap: str, topic: str) -> tuple[str, int]:
    """The address of partition 0's leader."""
    host, port = parse_host_port(bootstrap.split(",")[0])
    line = Line(host, int(port))
    found: MetadataResponse = line.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    line.close()
    leader = next(one.leader_id for one in found.topics[0].partitions if one.partition_index == 0)
    return next((broker.host, broker.port) for broker in found.brokers if broker.node_id == leader)


def latencies_us(bootstrap: str, requests: int) -> dict[str, list[float]]:
    produce_one(bootstrap, TOPIC)  # creates the topic
    line = Line(*leader_of(bootstrap, TOPIC))
    produce, fetch = small_produce(TOPIC), small_fetch(TOPIC)
    for _ in range(20):  # more than one fetch can return
        stored: ProduceResponse = line.call(produce)
        assert stored.responses[0].partition_responses[0].error_code == 0, stored
    read: FetchResponse = line.call(fetch)
    assert read.responses[0].partitions[0].records, read
    taken = {}
    for what, message in (("Produce, acks=1", produce), ("Fetch", fetch)):
        line.times_us(message, requests // 5)
        taken[what] = line.times_us(message, requests)
    line.close()
    return taken


def measure(requests: int = REQUESTS) -> list[Figure]:
    found: dict[str, dict[str, list[float]]] = {}
    with working("latency") as status:
        for name in COMMANDS:
            status.update(f"latency: {name}")
            with running(name) as peer:
                found[name] = latencies_us(peer.bootstrap, requests)
    rows, figures = [], []
    for what, own in found["anabranch"].items():
        mock = found["mock"][what]
        points = [(percentile(own, percent), percentile(mock, percent)) for percent in PERCENTS]
        rows.append((f"{what}: anabranch", *(f"{a:.0f}" for a, _ in points)))
        rows.append((f"{what}: mock cluster", *(f"{b:.0f}" for _, b in points)))
        rows.append(("  ratio", *(times(a, b) for a, b in points)))
        figures.append(
            Figure(
                f"{what}, latency p50 / p95 / p99",
                "shown",
                " / ".join(f"{a:.0f}" for a, _ in points) + " us",
                "mock cluster " + " / ".join(f"{b:.0f}" for _, b in points) + " us",
            )
        )
    table(
        f"latency of one small request over a socket, microseconds, {requests} requests each",
        *("", *(f"p{percent}" for percent in PERCENTS)),
        rows=rows,
    )
    return figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"of each kind (default: {REQUESTS})")
    summary(measure(parser.parse_args(arguments).requests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
