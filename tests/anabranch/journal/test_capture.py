"""A capture has requests and responses in a format of capture tools, without secrets."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from anabranch.control.client import ControlError
from anabranch.journal.capture import capture
from anabranch.testing.clusters import Clusters
from anabranch.testing.running_cluster import RunningCluster
from tests.anabranch.control.test_states import produce


def exchanges(kafka: RunningCluster, path: Path) -> None:
    """The exchanges of a producer and an Admin, with a record of several packets."""
    from confluent_kafka import Producer

    kafka.topic("orders")
    with kafka.faults(name="slow", api="Produce", delay_ms=1):
        produce(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "shop"})
    producer.produce("orders", b"x" * 150_000, partition=0)
    assert producer.flush(60) == 0
    kafka.journal.save(path)


def blocks(content: bytes) -> list[tuple[int, bytes]]:
    """Type and content of each block of a pcapng file, whose length stands before and behind it."""
    found, at = [], 0
    while at < len(content):
        kind, length = struct.unpack_from("<II", content, at)
        assert length % 4 == 0 and struct.unpack_from("<I", content, at + length - 4) == (length,)
        found.append((kind, content[at + 8 : at + length - 4]))
        at += length
    return found


def test_capture_is_tcp_streams_of_frames(tmp_path: Path) -> None:
    with Clusters() as clusters, clusters.running(journal=100, frames=True) as kafka:
        exchanges(kafka, tmp_path / "all.pcapng")
        kept = kafka.journal.entries()
    section, interface, *packets = blocks((tmp_path / "all.pcapng").read_bytes())
    assert (section[0], interface[0], {kind for kind, _ in packets}) == (0x0A0D0D0A, 1, {6})
    streams: dict[bytes, bytes] = {}
    for _, content in packets:
        length = struct.unpack_from("<I", content, 12)[0]
        packet = content[20 : 20 + length]
        sequence = struct.unpack_from(">I", packet, 24)[0]
        total = sum(struct.unpack(">10H", packet[:20]))
        assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
        way = packet[12:24]
        assert sequence == len(streams.setdefault(way, b"")) + 1
        streams[way] += packet[40:]
    requests = [way for way in streams if way[10:12] == (9092).to_bytes(2, "big")]
    numbers = []
    for way in requests:
        at = 0
        while at < len(streams[way]):
            size, _, _, number = struct.unpack_from(">ihhi", streams[way], at)
            numbers.append(number)
            at += 4 + size
        assert at == len(streams[way])
    assert sorted(numbers) == sorted(one["correlation_id"] for one in kept)
    assert b"by slow" in (tmp_path / "all.pcapng").read_bytes()


def test_capture_without_frames_is_refused(tmp_path: Path) -> None:
    with (
        Clusters() as clusters,
        clusters.running(journal=10) as kafka,
        pytest.raises(ControlError, match="--control-frames"),
    ):
        kafka.journal.save(tmp_path / "none")
    assert len(blocks(capture([], 0))) == 2


@pytest.mark.tshark
def test_tshark_decodes_api_topic_and_client(tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("NO TSHARK: what Wireshark reads of a capture was NOT looked at")
    path = tmp_path / "all.pcapng"
    with Clusters() as clusters, clusters.running(journal=100, frames=True) as kafka:
        exchanges(kafka, path)
    words = ["tshark", "-r", str(path), "-Y", "kafka", "-T", "json"]
    output = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    layers = [one["_source"]["layers"] for one in output]
    text = json.dumps(layers)
    assert '"kafka.topic_name": "orders"' in text and '"kafka.client_id": "shop"' in text
    shown = [one["kafka"] for one in layers if "kafka" in one]
    keys = {one.get("kafka.api_key", one.get("kafka.request_key")) for one in shown if isinstance(one, dict)}
    assert {"0", "3"} <= keys, "Produce and Metadata"
    # Of versions that are newer than it knows it says so, and then it may lose its way.
    broken = [one for one in map(json.dumps, layers) if "_ws.malformed" in one]
    assert all("Unsupported" in one for one in broken) and len(broken) < len(layers)
