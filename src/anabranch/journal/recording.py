"""Reads recorded exchanges from a file: a capture of this package (pcapng), or JSON lines with bytes. Pure.

It reads other captures of the same form: IPv4 without fragments, TCP in order and without losses.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from anabranch.journal.capture import BROKERS, KAFKA_PORT, RAW_IP
from anabranch.protocol.values import value

PCAPNG: Final = b"\x0a\x0d\x0d\x0a"
INTERFACE_BLOCK: Final = 1
PACKET: Final = 6
TCP: Final = 6
FRAME_BYTES_MAX: Final = 1 << 30


class InvalidRecording(ValueError):
    """A file that holds no exchanges; the message names the remedy."""


@value
class RecordedExchange:
    """One request with its response."""

    number: int
    at_s: float
    answered_s: float | None
    """The time of the response; None without one."""
    node_id: int
    connection: str
    request: bytes
    """Without its length."""
    answer: bytes
    """Without its length; empty without a response."""


def read_recording(content: bytes) -> list[RecordedExchange]:
    """Read the exchanges of a file, in the order of the requests. InvalidRecording names the error."""
    found = list(_of_capture(content) if content.startswith(PCAPNG) else _of_lines(content))
    if not found:
        raise InvalidRecording(
            "the file has no exchanges with bytes; write one with anabranch journal --capture FILE, or "
            "--json --bytes, of a cluster that runs with --control-frames"
        )
    return sorted(found, key=lambda one: (one.at_s, one.number))


def _of_lines(content: bytes) -> Iterator[RecordedExchange]:
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, Mapping):
                raise ValueError("no object")
            if row.get("bytes") is not None:
                yield _of_row(row)
        except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise InvalidRecording(f"line {number} is not an exchange of the journal: {error}") from None


def _of_row(row: Mapping[str, Any]) -> RecordedExchange:
    request_frame, response_frame = (base64.b64decode(row["bytes"][one]) for one in ("request", "response"))
    ended_s = None if not response_frame or row["ms"] is None else row["at"] + row["ms"] / 1000
    return RecordedExchange(
        row["number"], row["at"], ended_s, row["node"], row["peer"], request_frame[4:], response_frame[4:]
    )


# --- captures

Way = tuple[int, int, int, int]
"""Address and port of the sender, and of the receiver."""


def _of_capture(content: bytes) -> Iterator[RecordedExchange]:
    streams: dict[Way, bytearray] = {}
    chunks: dict[Way, list[tuple[float, bytes]]] = {}
    for at_s, way, data in _packets(content):
        stream = streams.setdefault(way, bytearray())
        stream += data
        chunks.setdefault(way, []).extend((at_s, frame) for frame in _frames(stream))
    for way, requests in chunks.items():
        if way[3] == KAFKA_PORT:
            yield from _pair(way, requests, deque(chunks.get((*way[2:], *way[:2]), ())))


def _pair(
    way: Way, requests: list[tuple[float, bytes]], answers: deque[tuple[float, bytes]]
) -> Iterator[RecordedExchange]:
    """Match each request of a connection with its response: responses come in order, and some requests have none."""
    for number, (at_s, frame) in enumerate(requests, start=1):
        answered_s, answer = None, b""
        if answers and answers[0][1][:4] == frame[4:8]:
            answered_s, answer = answers.popleft()
        yield RecordedExchange(number, at_s, answered_s, way[2] - BROKERS, f"{way[0]}:{way[1]}>{way[2]}", frame, answer)


def _frames(stream: bytearray) -> Iterator[bytes]:
    """Remove the complete frames from the beginning of a stream."""
    while len(stream) >= 4:
        length = int.from_bytes(stream[:4], "big")
        if length > FRAME_BYTES_MAX:
            raise InvalidRecording(f"a frame of {length} bytes: not a capture of Kafka's protocol on port {KAFKA_PORT}")
        if len(stream) < 4 + length:
            return
        yield bytes(stream[4 : 4 + length])
        del stream[: 4 + length]


def _packets(content: bytes) -> Iterator[tuple[float, Way, bytes]]:
    """The time, the addresses and the content of each TCP segment."""
    try:
        for kind, block in _blocks(content):
            if kind == INTERFACE_BLOCK and struct.unpack_from("<H", block)[0] != RAW_IP:
                raise InvalidRecording("the capture has frames that are not IP; captures of the journal have only IP")
            if kind != PACKET:
                continue
            _, high, low, size, _ = struct.unpack_from("<IIIII", block)
            packet = block[20 : 20 + size]
            head = (packet[0] & 15) * 4
            if packet[9] != TCP:
                continue
            source, target = struct.unpack_from(">II", packet, 12)
            source_port, target_port = struct.unpack_from(">HH", packet, head)
            start = head + (packet[head + 12] >> 4) * 4
            length: int = struct.unpack_from(">H", packet, 2)[0]
            yield (high << 32 | low) / 1e6, (source, source_port, target, target_port), packet[start:length]
    except (struct.error, IndexError):
        raise InvalidRecording("the capture is truncated, or not written by the journal") from None


def _blocks(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(content):
        kind, length = struct.unpack_from("<II", content, at)
        if length < 12 or at + length > len(content):
            raise IndexError
        yield kind, content[at + 8 : at + length - 4]
        at += length
