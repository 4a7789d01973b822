"""The Python time of one small Produce (acks=1) and one small Fetch inside the broker, without a socket.

A whole node runs, with logs in memory; frames go directly to the protocol object of one connection, and the response is
taken in place of the transport. The time is all that Python does for a request: frame, decode, dispatch, handler, log,
encode. It is processor time, which other programs affect little. The peer is the minimum for any broker in Python:
decode the same frame, and encode the same response.

    python -m benchmarks.request_path [--requests 5000] [--profile]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anabranch.broker.authorization.peer import Peer
from anabranch.broker.network.connection import BrokerConnection
from anabranch.broker.node.app import Node
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.clients.admin import Admin
from anabranch.clients.topic_admin import NewTopic
from anabranch.cluster.in_process import Cluster
from anabranch.protocol import codec
from anabranch.protocol.acls import Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from anabranch.protocol.apis.fetch import FetchRequest
from anabranch.protocol.apis.produce import ProduceRequest
from anabranch.protocol.connection import ClientConnection, ServerConnection, decode_request, encode_response
from anabranch.runtime.runner import freeze_memory
from benchmarks.latency import VERSIONS, small_fetch, small_produce
from benchmarks.report import Figure, console, summary, table, times, working

TOPIC: Final = "path"
AIM_US: Final = 60.0
RULES: Final = 10
RULES_AIM_US: Final = 5.0
ENTRIES: Final = (1, 100, 10_000)
"""The number of access control entries besides the one that allows the request."""
ENTRIES_AIM_US: Final = 2.0
AUTHORIZER: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ALICE: Final = Peer("127.0.0.1", 1, "User:alice")
REQUESTS: Final = 5000
ROUNDS: Final = 7


class Sink(asyncio.Transport):
    """A transport that collects responses, and reports complete ones."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.on_answer: Callable[[], None] = lambda: None
        self.answer = b""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing: no data is buffered."""

    def get_write_buffer_size(self) -> int:
        """Always 0: no data is buffered."""
        return 0

    def write(self, data: Any) -> None:
        """Take a part of a long response."""
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        """Take a response in parts."""
        self.answer = list_of_data
        self.on_answer()

    def close(self) -> None:
        """Does nothing."""

    def abort(self) -> None:
        """Does nothing."""

    def is_closing(self) -> bool:
        """Always False."""
        return False


def receive(protocol: BrokerConnection | ServerConnection, frame: bytes) -> None:
    """Pass bytes to a protocol as a transport does: as many at a time as fit its buffer."""
    rest = memoryview(frame)
    while rest:
        room = protocol.get_buffer(-1)
        size = min(len(room), len(rest))
        room[:size] = rest[:size]
        protocol.buffer_updated(size)
        rest = rest[size:]


@dataclass(slots=True)
class Path:
    """One kind of request on its way through the node."""

    node: Node
    connection: BrokerConnection
    sink: Sink
    message: Any
    peer: Peer = ALICE

    @property
    def version(self) -> int:
        """The version of the request."""
        return VERSIONS[type(self.message)]

    @property
    def frame(self) -> bytes:
        """The request's frame."""
        _, chunks = ClientConnection("benchmark").request(self.message, self.version)
        return b"".join(bytes(chunk) for chunk in chunks)

    async def whole_us(self, count: int) -> float:
        """Microseconds per request, from the bytes in the buffer to the bytes for the socket."""
        frame, connection = self.frame, self.connection
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        left = count

        def answered() -> None:
            nonlocal left
            left -= 1
            if left:
                loop.call_soon(receive, connection, frame)  # as the selector does for the next request
            else:
                done.set_result(None)

        self.sink.on_answer = answered
        start_s = time.thread_time()
        loop.call_soon(receive, connection, frame)
        await done
        return (time.thread_time() - start_s) / count * 1e6

    def frame_and_decode_us(self, count: int) -> float:
        """Microseconds for frame and decode alone: the connection's core, without the response."""
        frame = self.frame
        core = ServerConnection(self.node.server.dispatcher.audiences.others.accepted)

        def one() -> None:
            receive(core, frame)
            core.next_request()
            core._open = None

        return each_us(one, count)

    async def handled_us(self, count: int) -> float:
        """Microseconds for dispatcher, handler and log."""
        dispatcher = self.node.server.dispatcher
        request = decode_request(self.frame[4:], dispatcher.audiences.others.accepted)
        answer: Callable[..., Awaitable[Any]] = dispatcher.answer
        start_s = time.thread_time()
        for _ in range(count):
            await answer(request, self.peer)
        return (time.thread_time() - start_s) / count * 1e6

    def log_us(self, count: int) -> float:
        """Microseconds for the partition's log alone."""
        partition = self.node.services.replicas.leader_of(TOPIC, 0)
        log = partition.log
        if isinstance(self.message, ProduceRequest):
            records = self.message.topic_data[0].partition_data[0].records
            epoch, now_ms = partition.leader_epoch, self.node.services.clock_ms()
            return each_us(lambda: append_as_leader(log, records, leader_epoch=epoch, now_ms=now_ms), count)
        fetch = self.message.topics[0].partitions[0]
        limit = partition.high_watermark
        return each_us(lambda: log.read(fetch.fetch_offset, fetch.partition_max_bytes, limit_offset=limit), count)

    async def encode_us(self, count: int) -> float:
        """Microseconds for encoding the response."""
        dispatcher = self.node.server.dispatcher
        request = decode_request(self.frame[4:], dispatcher.audiences.others.accepted)
        response = await dispatcher.answer(request, self.peer)
        return each_us(lambda: encode_response(request, response), count)

    async def floor_us(self, count: int) -> float:
        """Microseconds for the generated codec alone, on the same request and response: the minimum."""
        dispatcher = self.node.server.dispatcher
        request = decode_request(self.frame[4:], dispatcher.audiences.others.accepted)
        response = await dispatcher.answer(request, self.peer)
        body = codec.encode(self.message, self.version)
        cls, version = type(self.message), self.version

        def one() -> None:
            codec.decode(cls, version, body)
            codec.encode_chunks(response, version)

        return each_us(one, count)


def each_us(action: Callable[[], object], count: int) -> float:
    start_s = time.thread_time()
    for _ in range(count):
        action()
    return (time.thread_time() - start_s) / count * 1e6


async def opened(node: Node, servers: str, messages: list[Any]) -> list[Path]:
    """The paths of a node, on a topic with records."""
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=1)])
    paths = []
    for message in messages:
        connection, sink = BrokerConnection(node.server, node.settings.first_listener), Sink()
        connection.connection_made(sink)
        paths.append(Path(node, connection, sink, message))
    await paths[0].whole_us(50)
    freeze_memory()
    return paths


async def stages_us(path: Path, count: int) -> dict[str, float]:
    """The best of several rounds for each stage: disturbances only add time."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        found = {
            "whole request": await path.whole_us(count),
            "frame and decode": path.frame_and_decode_us(count),
            "dispatch, handler, log": await path.handled_us(count),
            "log": path.log_us(count),
            "encode": await path.encode_us(count),
            "floor": await path.floor_us(count),
        }
        best = {stage: min(best.get(stage, taken), taken) for stage, taken in found.items()}
    return best


async def ruled_us(cluster: Cluster, path: Path, count: int) -> float:
    """The time added by ten fault rules about other partitions of the same topic."""
    plain, ruled = [], []
    for _ in range(ROUNDS):
        plain.append(await path.handled_us(count))
        for partition in range(RULES):
            cluster.faults.add(topic=TOPIC, partition=partition + 1, hold=True)
        await path.handled_us(1)  # the matching rules are cached per kind of request
        ruled.append(await path.handled_us(count))
        cluster.faults.clear()
    return min(ruled) - min(plain)


async def authorized_us(messages: list[Any], count: int) -> list[dict[int, float]]:
    """Access control entries -> microseconds for dispatcher, handler and log, on a node with an authorizer."""
    best: list[dict[int, float]] = [{} for _ in messages]
    async with Cluster(1, seed=random.randrange(1 << 30), properties=AUTHORIZER) as cluster:
        paths = await opened(cluster.nodes[1], cluster.bootstrap_servers, messages)
        authorizer = paths[0].node.services.authorizer
        mine = [Acl(ALICE.principal, "*", one, Permission.ALLOW) for one in (Operation.READ, Operation.WRITE)]
        authorizer.replace(ResourcePattern(ResourceType.TOPIC, TOPIC), mine)
        for entries in ENTRIES:
            for number in range(len(authorizer.acls) - 1, entries):
                pattern = ResourcePattern(ResourceType.TOPIC, f"{number}-", PatternType.PREFIXED)
                authorizer.replace(pattern, mine)
            for path, found in zip(paths, best, strict=True):
                found[entries] = min([await path.handled_us(count) for _ in range(ROUNDS)])
        for path in paths:
            await path.connection.stop()
    return best


async def everything(requests: int, profile: bool) -> list[dict[str, float]]:
    """All stages of both kinds; with `profile`, also print the functions of the whole path."""
    async with Cluster(1, seed=random.randrange(1 << 30)) as cluster:
        paths = await opened(cluster.nodes[1], cluster.bootstrap_servers, [small_produce(TOPIC), small_fetch(TOPIC)])
        found = [await stages_us(path, max(1, requests // ROUNDS)) for path in paths]
        for path, stages in zip(paths, found, strict=True):
            stages["rules"] = await ruled_us(cluster, path, max(1, requests // ROUNDS))
            stages["open"] = min([await path.handled_us(max(1, requests // ROUNDS)) for _ in range(ROUNDS)])
        if profile:
            for path in paths:
                await profiled(path, requests)
        for path in paths:
            await path.connection.stop()
    judged = await authorized_us([path.message for path in paths], max(1, requests // ROUNDS))
    for stages, by_entries in zip(found, judged, strict=True):
        stages |= {f"{entries:,} entries": taken - stages["open"] for entries, taken in by_entries.items()}
    return found


async def profiled(path: Path, requests: int) -> None:
    """Print the profile of the whole path."""
    import cProfile
    import pstats

    console.print(f"\nprofile of {requests} times {type(path.message).__name__}")
    profiler = cProfile.Profile()
    profiler.enable()
    await path.whole_us(requests)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def measure(requests: int = REQUESTS, *, profile: bool = False) -> list[Figure]:
    with working("request path"), asyncio.Runner() as runner:
        produce, fetch = runner.run(everything(requests, profile))
    rows: list[Sequence[str]] = []
    for stage in ("frame and decode", "dispatch and handler", "log", "encode", "connection, loop"):
        rows.append((f"  {stage}", f"{_stage(produce, stage):.1f}", f"{_stage(fetch, stage):.1f}"))
    rows.insert(0, ("whole request", f"{produce['whole request']:.1f}", f"{fetch['whole request']:.1f}"))
    rows.append((f"{RULES} rules that do not match add", f"{produce['rules']:.1f}", f"{fetch['rules']:.1f}"))
    for entries in (f"{one:,} entries" for one in ENTRIES):
        rows.append((f"an authorizer with {entries} adds", f"{produce[entries]:.1f}", f"{fetch[entries]:.1f}"))
    rows.append(("peer: decode and encode alone", f"{produce['floor']:.1f}", f"{fetch['floor']:.1f}"))
    ratios = [times(one["whole request"], one["floor"]) for one in (produce, fetch)]
    rows.append(("ratio", *ratios))
    table(
        f"request path: microseconds of Python for one small request, best of {ROUNDS} rounds",
        *("", f"Produce v{VERSIONS[ProduceRequest]}, acks=1", f"Fetch v{VERSIONS[FetchRequest]}"),
        rows=rows,
    )
    dearest_us = max(produce["rules"], fetch["rules"])
    rules = Figure(
        f"{RULES} rules of faults that do not match",
        f"< {RULES_AIM_US:.0f} us",
        f"{dearest_us:.1f} us",
        "none: the plain dispatcher",
        dearest_us < RULES_AIM_US,
    )
    judging_us = max(produce[f"{ENTRIES[-1]:,} entries"], fetch[f"{ENTRIES[-1]:,} entries"])
    judging = Figure(
        f"an authorizer with {ENTRIES[-1]:,} entries adds",
        f"< {ENTRIES_AIM_US:.0f} us",
        f"{judging_us:.1f} us",
        "none: a node without one",
        judging_us < ENTRIES_AIM_US,
    )
    paths = [
        Figure(
            f"Python time of a small {name}",
            f"< {AIM_US:.0f} us",
            f"{found['whole request']:.0f} us",
            f"decode and encode alone {found['floor']:.0f} us ({times(found['whole request'], found['floor'])})",
            found["whole request"] < AIM_US,
        )
        for name, found in (("Produce", produce), ("Fetch", fetch))
    ]
    return [*paths, rules, judging]


def _stage(found: dict[str, float], stage: str) -> float:
    if stage == "dispatch and handler":
        return found["dispatch, handler, log"] - found["log"]
    if stage == "connection, loop":
        parts = found["frame and decode"] + found["dispatch, handler, log"] + found["encode"]
        return found["whole request"] - parts
    return found[stage]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"of each kind (default: {REQUESTS})")
    parser.add_argument("--profile", action="store_true", help="print the functions that take the time")
    options = parser.parse_args(arguments)
    summary(measure(options.requests, profile=options.profile))
    return 0


if __name__ == "__main__":
    sys.exit(main())
