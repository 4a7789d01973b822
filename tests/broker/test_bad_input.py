"""Thousands of malformed connections against a live node in its own process.

After every group of cases: another connection still gets its answers, the records written before are there byte for
byte, the log has no traceback (a bug of ours is one, a peer's nonsense is one line), and the memory of the node has
not grown.

What cannot be told from a legitimate order of a controller is left out: whoever may send UpdateMetadata to a cluster
without an authorizer rules it, in Kafka too. The same goes for requests that create topics.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.broker.dispatch.request_context import version_range
from anabranch.protocol import codec
from anabranch.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.registry import BY_NAME
from tests.broker.mutated_frames import RULING, framed, fuzz, header, mutated_frame
from tests.broker.serving import request_frame
from tests.protocol.messages import as_sent, values_of

TOPIC = "victim"
ANSWER_TIMEOUT_S = 60
RSS_GROWTH_BYTES_MAX = 24 << 20
FETCH_VERSION, PRODUCE_VERSION, METADATA_VERSION = 11, 9, 9


@dataclass
class Victim:
    """A node in a process of its own, with a topic whose content is known."""

    process: subprocess.Popen[str]
    port: int
    log_path: Path
    content: bytes = b""
    rss_bytes: int = 0
    witness: socket.socket = field(init=False)

    def connect(self) -> socket.socket:
        """A new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_TIMEOUT_S)

    def ask(self, name: str, version: int, request: Any, connection: socket.socket | None = None) -> Any:
        """One round trip."""
        api = BY_NAME[name]
        body = codec.encode(request, version)
        with contextlib.ExitStack() as stack:
            sock = connection or stack.enter_context(self.connect())
            send(sock, request_frame(api.key, version, body, flexible=api.flexible(version)))
            frame = read_frame(sock)
        assert frame is not None, f"{name} was not answered"
        header_bytes = 5 if api.response_header_version(version) else 4
        return codec.decode(api.response, version, frame, header_bytes)[0]

    def produce(self, records: bytes, *, connection: socket.socket | None = None) -> tuple[int, int]:
        """Error code and base offset."""
        partition = PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])]
        )
        response: ProduceResponse = self.ask("Produce", PRODUCE_VERSION, request, connection)
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def fetch(self) -> bytes:
        """Everything in the topic."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[partition])]
        )
        response: FetchResponse = self.ask("Fetch", FETCH_VERSION, request)
        answer = response.responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        return bytes(answer.records or b"")

    def rss(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * 4096

    def check(self) -> None:
        """Alive, answering, unharmed and no larger than before."""
        assert self.process.poll() is None, f"the node died\n{self.log_path.read_text()[-3000:]}"
        send(self.witness, request_frame(18, 0))
        frame = read_frame(self.witness)
        assert frame is not None, "a connection that did nothing wrong was closed"
        assert codec.decode(ApiVersionsResponse, 0, frame, 4)[0].error_code == ErrorCode.NONE
        assert self.fetch() == self.content, "the data has changed"
        log = self.log_path.read_text()
        assert "Traceback" not in log, log[-6000:]
        grown = self.rss() - self.rss_bytes
        assert grown < RSS_GROWTH_BYTES_MAX, f"memory grew by {grown >> 20} MiB"


def send(sock: socket.socket, frame: bytes) -> None:
    """Write one frame."""
    sock.sendall(struct.pack(">i", len(frame)) + frame)


def read_exactly(stream: IO[bytes], size: int) -> bytes | None:
    """So many bytes, or None at the end of the stream."""
    data = stream.read(size)
    return data if len(data) == size else None


def read_frame(sock: socket.socket) -> bytes | None:
    """One frame, or None if the peer closes."""
    with sock.makefile("rb") as stream:
        head = read_exactly(stream, 4)
        return None if head is None else read_exactly(stream, struct.unpack(">i", head)[0])


_NODE = ApiVersionsRequest(client_software_name=NODE_SOFTWARE, client_software_version="1")
INTRODUCTION = framed(request_frame(18, 3, codec.encode(_NODE, 3), flexible=True))
"""Whoever says this is served whatever the node can do."""


def attack(victim: Victim, raw: bytes) -> None:
    """Send bytes and leave: the node must answer or close, and not keep us waiting."""
    with victim.connect() as sock, contextlib.suppress(ConnectionError):
        sock.sendall(INTRODUCTION + raw)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    log_path = tmp_path_factory.mktemp("victim") / "log"
    command = [
        sys.executable,
        "-m",
        "anabranch.cli.main",
        "up",
        "--brokers",
        "1",
        "--port",
        "0",
        "--log-level",
        "warning",
    ]
    command += ["--config", "socket.request.max.bytes=1048576"]
    command += ["--config", "log.retention.ms=-1"]  # the records are old, and the node may live for minutes
    with log_path.open("w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready"), log_path.read_text()
        one = Victim(process, int(line.rpartition(":")[2]), log_path)
        one.witness = one.connect()
        prepare(one)
        with one.witness:
            yield one
        process.terminate()
        assert process.wait(60) == 0


def prepare(victim: Victim) -> None:
    """Write known content, and let the node reach its usual size."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        response: MetadataResponse = victim.ask("Metadata", METADATA_VERSION, request)
        if response.topics[0].error_code == ErrorCode.NONE:
            break
        assert time.monotonic() < deadline
    assert victim.produce(batch()) == (ErrorCode.NONE, 0)
    victim.content = victim.fetch()
    assert len(victim.content) == len(batch())
    for row in HANDLERS:  # every handler module is loaded
        for version in range(version_range(row.versions)[1] + 1):
            attack(victim, framed(header(row, version)))
    victim.rss_bytes = victim.rss()


def batch(count: int = 5) -> bytes:
    """A valid record batch."""
    builder = BatchBuilder()
    for number in range(count):
        builder.append(b"key", b"value-%d" % number, (), 1_700_000_000_000 + number)
    return bytes(builder.build())


@fuzz(450)
@given(raw=st.binary(max_size=200))
def test_random_bytes_do_not_harm_the_node(victim: Victim, raw: bytes) -> None:
    attack(victim, raw)


@fuzz(450)
@given(frames=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_random_frames_do_not_harm_the_node(victim: Victim, frames: list[bytes]) -> None:
    attack(victim, b"".join(map(framed, frames)))


@fuzz(500)
@given(data=st.data())
def test_known_headers_with_random_bodies_do_not_harm_the_node(victim: Victim, data: st.DataObject) -> None:
    row = data.draw(st.sampled_from([row for row in HANDLERS if row.name not in RULING]))
    version = data.draw(st.integers(-1, version_range(row.versions)[1] + 2))
    attack(victim, framed(header(row, version) + data.draw(st.binary(max_size=100))))


@fuzz(200)
@given(key=st.integers(-(2**15), 2**15 - 1), version=st.integers(-(2**15), 2**15 - 1), body=st.binary(max_size=20))
def test_unknown_apis_and_versions_do_not_harm_the_node(victim: Victim, key: int, version: int, body: bytes) -> None:
    served = {row.api.key for row in HANDLERS}
    if key in served:
        version |= 0x4000
    attack(victim, framed(request_frame(key, version, body)))


@fuzz(600)
@given(data=st.data())
def test_mutated_valid_requests_do_not_harm_the_node(victim: Victim, data: st.DataObject) -> None:
    attack(victim, mutated_frame(data))


@fuzz(150)
@given(data=st.data())
def test_truncated_controller_requests_do_not_harm_the_node(victim: Victim, data: st.DataObject) -> None:
    row = data.draw(st.sampled_from([row for row in HANDLERS if row.name in RULING]))
    version = data.draw(st.integers(0, version_range(row.versions)[1]))
    value = as_sent(data.draw(values_of(row.api.request)), version)
    body = codec.encode(value, version)
    attack(victim, framed(header(row, version) + body[: data.draw(st.integers(0, max(len(body) - 1, 0)))]))


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 1048577) + b"x" * 1000,
        struct.pack(">i", 1048576) + b"x" * 100_000,
        struct.pack(">i", 0),
        struct.pack(">i", 7) + b"\0" * 7,
        framed(request_frame(3, 1, struct.pack(">i", 2**31 - 1))),
        framed(request_frame(3, 1, struct.pack(">i", -2))),
        framed(request_frame(3, 1, struct.pack(">ih", 1, -1))),
        framed(request_frame(3, 9, b"\xff\xff\xff\xff\x0f\0\0", flexible=True)),
        framed(request_frame(3, 9, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", flexible=True)),
        framed(request_frame(10, 0, struct.pack(">h", -1))),
        framed(request_frame(11, 0, struct.pack(">hihhi", -1, 0, -1, -1, -1))),
        framed(request_frame(0, 3, struct.pack(">hhii", -1, -1, 1000, 2**31 - 1))),
        framed(request_frame(1, 4, struct.pack(">iiiibi", -1, 0, 0, 0, 0, 2**31 - 1))),
        framed(struct.pack(">hhih", 3, 1, 1, 32767)),
        framed(struct.pack(">hhih", 3, 1, 1, -2)),
        framed(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe"),
        framed(request_frame(3, 9) + b"\x01\x00\xff\xff\xff\xff\x0f"),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    ],
    ids=lambda raw: raw[:12].hex(),
)
def test_malformed_examples_do_not_harm_the_node(victim: Victim, raw: bytes) -> None:
    attack(victim, raw)
    victim.check()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (struct.pack(">i", -1), "frame of -1 bytes"),
        (struct.pack(">i", 1048577), "frame of 1048577 bytes"),
        (struct.pack(">i", 2**31 - 1), "frame of 2147483647 bytes"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), "a TLS handshake; this port is not a TLS port"),
        (framed(struct.pack(">hhi", 2000, 0, 1)), "unknown API 2000"),
        (framed(request_frame(3, 13)), "Metadata v13"),
        (framed(request_frame(3, 1, struct.pack(">i", 2**31 - 1))), "Metadata v1"),
        (framed(request_frame(10, 0, struct.pack(">h", -1))), "FindCoordinator v0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_frame_closes_the_connection_and_is_logged_in_one_line(
    victim: Victim, raw: bytes, reason: str
) -> None:
    """The client keeps its end open: the node closes."""
    before = len(victim.log_path.read_text().splitlines())
    with victim.connect() as sock:
        sock.sendall(raw)
        with contextlib.suppress(ConnectionError):
            assert sock.recv(1) == b""
    victim.check()
    (line,) = victim.log_path.read_text().splitlines()[before:]
    assert reason in line


REFUSED = (
    *(ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,  # there is no id: looked at before the checksum, as in Kafka
)


@fuzz(200)
@example(place=22, bit=4)  # now it is transactional
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_damaged_batch_is_refused_and_not_appended(victim: Victim, place: int, bit: int) -> None:
    """Any changed bit is noticed. Offset and leader epoch are not covered: the leader sets them."""
    records = bytearray(batch())
    place %= len(records)
    if place < 8 or 12 <= place < 16:
        place = 30
    records[place] ^= 1 << bit
    with victim.connect() as sock:
        code, _ = victim.produce(bytes(records), connection=sock)
        assert code in REFUSED
        send(sock, request_frame(18, 0))
        assert read_frame(sock) is not None, "a refused batch does not cost the connection"


def test_partial_requests_use_little_memory(victim: Victim) -> None:
    """Announced frame sizes must not allocate memory."""
    before = victim.rss()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(victim.connect())
            sock.sendall(struct.pack(">i", 1048576) + b"x" * 100)
        victim.check()
        assert victim.rss() - before < RSS_GROWTH_BYTES_MAX


def test_node_works_after_all_malformed_input(victim: Victim) -> None:
    """Runs after the others: the state is unchanged, and records are accepted."""
    gc.collect()
    victim.check()
    said = victim.log_path.read_text().count("frame of -1 bytes")
    for _ in range(50):
        attack(victim, struct.pack(">i", -1))
    assert victim.log_path.read_text().count("frame of -1 bytes") == said + 50, "nonsense leaves a line each"
    assert victim.produce(batch()) == (ErrorCode.NONE, 5)
