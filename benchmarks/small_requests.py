"""Processor time of a cluster per small request, with fifty connections that each have one request in flight.

Fifty connections to one broker send the same bytes, each as soon as the response has arrived: Produce with acks=1 to
one replica and with acks=all to three, Fetch of one kilobyte, Metadata of one topic. The figure is the processor time
of the whole cluster per request, including the kernel, in rounds that alternate between clusters. The peers are
librdkafka's mock cluster, and kfake if ANABRANCH_KFAKE names a program that starts one and prints
`bootstrap=HOST:PORT,...`. Servers that only echo the same bytes are measured in the same rounds (`yardsticks`), and
each figure is also given as a multiple of the echo on asyncio.

    python -m benchmarks.small_requests [--rounds 5] [--seconds 2]
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import ProduceResponse
from anabranch.protocol.connection import ClientConnection
from anabranch.protocol.host_port import parse_host_port
from benchmarks.latency import VERSIONS, Line, leader_of, small_fetch, small_produce
from benchmarks.peers import COMMANDS, Peer, produce_one, running, running_command
from benchmarks.report import Figure, median, run_benchmark, table, times, working
from benchmarks.throughput import create_topic
from benchmarks.yardsticks import ECHOES, LOOP_TURNS, NO_COMPILER, echo_commands, loop_ms

CONNECTIONS: Final = 50
ROUNDS: Final = 5
SECONDS: Final = 2.0
AIM_US: Final = 60.0
ALONE: Final = "alone"
COPIED: Final = "copied"
WAKING: Final = "one connection"
"""Each response wakes a client with one connection, and a busy one with fifty sleeps never."""
KFAKE: Final = os.environ.get("ANABRANCH_KFAKE")

REQUESTS: Final[dict[str, tuple[str, Any]]] = {
    "Produce, acks=1, one replica": (ALONE, small_produce(ALONE)),
    "Produce, acks=all, three replicas": (COPIED, small_produce(COPIED, acks=-1)),
    "Fetch": (ALONE, small_fetch(ALONE)),
    "Metadata": (ALONE, MetadataRequest(topics=[MetadataRequestTopic(name=ALONE)])),
}


def prepare(name: str, bootstrap: str) -> None:
    """Create both topics, and store records."""
    for topic, replicas in ((ALONE, 1), (COPIED, 3)):
        if name == "anabranch":
            create_topic(bootstrap, topic, replicas)
        produce_one(bootstrap, topic)  # creates the topic in the other clusters
        line = Line(*leader_of(bootstrap, topic))
        for _ in range(20):
            stored: ProduceResponse = line.call(small_produce(topic))
            assert stored.responses[0].partition_responses[0].error_code == 0, stored
        line.close()


def frame_of(message: Any) -> bytes:
    """The bytes of a request."""
    _, chunks = ClientConnection("benchmark").request(message, VERSIONS[type(message)])
    return b"".join(bytes(chunk) for chunk in chunks)


def response_bytes(address: tuple[str, int], message: Any) -> int:
    """The size of the response to a request."""
    with socket.create_connection(address, timeout=30) as one:
        one.sendall(frame_of(message))
        length = one.recv(4, socket.MSG_WAITALL)
    return 4 + int.from_bytes(length)


class Load:
    """Connections with one request in flight each."""

    def __init__(self, address: tuple[str, int], message: Any, connections: int = CONNECTIONS) -> None:
        self._frame = frame_of(message)
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray(1 << 16)
        self._missing: dict[socket.socket, int] = {}
        for _ in range(connections):
            one = socket.create_connection(address, timeout=30)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(one, selectors.EVENT_READ)
            self._missing[one] = 0
            one.sendall(self._frame)

    def keep_up(self, seconds: float) -> int:
        """Repeat the request on each connection; returns the number of responses. Raises TimeoutError without any."""
        end_s, answers = time.perf_counter() + seconds, 0
        buffer, missing = self._buffer, self._missing
        while time.perf_counter() < end_s:
            for key, _ in self._selector.select(1):
                one: socket.socket = key.fileobj  # type: ignore[assignment]
                got = one.recv_into(buffer)
                if not got:
                    raise ConnectionError("the cluster hung up")
                missing[one] = (missing[one] or 4 + int.from_bytes(buffer[:4])) - got
                if not missing[one]:
                    answers += 1
                    one.sendall(self._frame)
        if not answers:
            raise TimeoutError(f"no response within {seconds:g} s: give more --seconds, or a machine that is less busy")
        return answers

    def keep_time(self, seconds: float) -> tuple[list[float], list[bytes]]:
        """Repeat the request; returns the milliseconds of each response, and the responses for later checks."""
        clock, buffer = time.perf_counter, self._buffer
        sent_s: dict[socket.socket, float] = {}
        taken_ms, answers = [], []
        end_s = clock() + seconds
        while clock() < end_s:
            for key, _ in self._selector.select(1):
                one: socket.socket = key.fileobj  # type: ignore[assignment]
                got = one.recv_into(buffer)
                now_s = clock()
                if got < 4 or got != 4 + int.from_bytes(buffer[:4]):
                    raise ConnectionError(f"an answer of {got} bytes, in pieces or none")
                if one in sent_s:
                    taken_ms.append((now_s - sent_s[one]) * 1e3)
                    answers.append(bytes(buffer[4:got]))
                sent_s[one] = clock()
                one.sendall(self._frame)
        return taken_ms, answers

    def close(self) -> None:
        """Close the connections."""
        for one in self._missing:
            one.close()
        self._selector.close()


def spent_us(peer: Peer, address: tuple[str, int], message: Any, seconds: float, connections: int) -> float:
    """Microseconds of the server's processor time per request."""
    load = Load(address, message, connections)
    load.keep_up(seconds / 5)
    before_s = peer.processor_s[0]
    answers = load.keep_up(seconds)
    after_s = peer.processor_s[0]
    load.close()
    return (after_s - before_s) / answers * 1e6


@dataclass(slots=True)
class Server:
    """One server that gets one kind of request."""

    peer: Peer
    address: tuple[str, int]
    connections: int


def servers(stack: contextlib.ExitStack, names: list[str], connections: int) -> dict[tuple[str, str], Server]:
    """Start the clusters and the echo servers: kind of request, name -> server."""
    found: dict[tuple[str, str], Server] = {}
    peers = {name: stack.enter_context(running(name)) for name in names}
    echoes = stack.enter_context(echo_commands())
    for name, peer in peers.items():
        prepare(name, peer.bootstrap)
        for what, (topic, _) in REQUESTS.items():
            found[what, name] = Server(peer, leader_of(peer.bootstrap, topic), connections)
    for what, (_, message) in REQUESTS.items():
        sizes = [len(frame_of(message)), response_bytes(found[what, names[0]].address, message)]
        for echo, command in echoes.items():
            peer = stack.enter_context(running_command(echo, [*command, *map(str, sizes)]))
            address = parse_host_port(peer.bootstrap)
            found[what, echo] = Server(peer, address, connections)
            found[what, f"{echo}, {WAKING}"] = Server(peer, address, connections=1)
    return found


def measure(rounds: int = ROUNDS, seconds: float = SECONDS, connections: int = CONNECTIONS) -> list[Figure]:
    names = [*COMMANDS]
    if KFAKE:
        COMMANDS["kfake"] = lambda: [KFAKE]
        names.append("kfake")
    with contextlib.ExitStack() as stack:
        status = stack.enter_context(working("small requests"))
        asked = servers(stack, names, connections)
        found: dict[tuple[str, str], list[float]] = {one: [] for one in asked}
        for number in range(rounds):
            for (what, name), spent in found.items():
                status.update(f"small requests: round {number + 1}, {name}, {what}")
                server, (_, message) = asked[what, name], REQUESTS[what]
                spent.append(spent_us(server.peer, server.address, message, seconds, server.connections))
    middle = {one: median(spent) for one, spent in found.items()}
    measured = list(dict.fromkeys(name for _, name in found))
    notes = [f"this machine takes {loop_ms():.1f} ms for {LOOP_TURNS:,} turns of a loop in Python"]
    notes += [] if KFAKE else ["not measured: kfake (ANABRANCH_KFAKE is not set)"]
    notes += [] if ECHOES[1] in measured else [NO_COMPILER]
    table(
        f"small requests: microseconds of the server's processor time each, {connections} connections, "
        f"medians of {rounds} rounds; in parentheses times the {ECHOES[0]}",
        *("", *REQUESTS),
        rows=[
            (
                one,
                *(
                    f"{middle[what, one]:.1f} ({times(middle[what, one], middle[what, ECHOES[0]])})"
                    for what in REQUESTS
                ),
            )
            for one in measured
        ],
        note="; ".join(notes),
    )
    return [
        Figure(
            f"processor time of a small request: {what}",
            f"< {AIM_US:.0f} us",
            f"{middle[what, 'anabranch']:.0f} us",
            ", ".join(
                f"{name} {middle[what, name]:.0f} us ({times(middle[what, 'anabranch'], middle[what, name])})"
                for name in (*names[1:], *(echo for echo in ECHOES if echo in measured))
            ),
            middle[what, "anabranch"] < AIM_US,
        )
        for what in REQUESTS
    ]


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(__doc__, measure, arguments, rounds=(ROUNDS, "measured rounds"), seconds=(SECONDS, "of each"))


if __name__ == "__main__":
    sys.exit(main())
