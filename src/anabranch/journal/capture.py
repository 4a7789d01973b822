"""Writes exchanges as a capture file (pcapng) for Wireshark and tshark.

The file has the frames of requests and responses in order of time, as segments of one TCP stream per connection.
Brokers have the addresses 10.92.0.ID and port 9092, whatever their real port, because Wireshark's Kafka dissector
expects it. There are no handshakes, no TLS and no retransmissions. A packet's comment has the number of its exchange,
and the rules that hit it. Pure.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.journal.entry import JournalEntry

KAFKA_PORT: Final = 9092
BROKERS: Final = int(ipaddress.IPv4Address("10.92.0.0"))
ELSEWHERE: Final = int(ipaddress.IPv4Address("10.92.255.255"))
"""The address of clients without an IPv4 address."""
SEGMENT_BYTES: Final = 60_000
RAW_IP: Final = 101
SECTION: Final = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
INTERFACE: Final = struct.pack("<IIHHII", 1, 20, RAW_IP, 0, 0, 20)
COMMENT: Final = 1
PUSH_AND_ACK: Final = 0x18


def capture(entries: Iterable[JournalEntry], day_s: float) -> bytes:
    """Write a pcapng file.

    Args:
        entries: The exchanges; those without kept bytes are left out.
        day_s: The difference between the time of day and the loop's time, in seconds.
    """
    sent: dict[tuple[int, int, int, int], int] = {}
    blocks = [SECTION, INTERFACE]
    for at_s, source, target, payload, comment in sorted(_packets(entries), key=lambda one: one[0]):
        way, back = (*source, *target), (*target, *source)
        for start in range(0, len(payload), SEGMENT_BYTES):
            segment = payload[start : start + SEGMENT_BYTES]
            packet = _packet(source, target, sent.setdefault(way, 1), sent.setdefault(back, 1), segment)
            sent[way] = (sent[way] + len(segment)) & 0xFFFFFFFF
            blocks.append(_block(at_s + day_s, packet, comment))
    return b"".join(blocks)


Place = tuple[int, int]
"""Address and port."""


def _packets(entries: Iterable[JournalEntry]) -> Iterator[tuple[float, Place, Place, bytes, str]]:
    sent_s: dict[tuple[Place, Place], float] = {}
    """When the last response of each connection was sent: an exchange that ends before an earlier one waits for it."""
    for one in sorted(entries, key=lambda entry: entry.number):
        if one.frames is None:
            continue
        client = _address(one.view.peer.host), one.view.peer.port
        broker = BROKERS + one.view.at.node_id, KAFKA_PORT
        comment = f"exchange {one.number}" + "".join(f", by {rule}" for rule in one.rules)
        yield one.at_s, client, broker, one.frames.request_bytes, comment
        if one.frames.answered and one.took_s is not None:
            at_s = max(one.at_s + one.took_s, sent_s.get((broker, client), 0.0))
            sent_s[broker, client] = at_s
            yield at_s, broker, client, one.frames.answered, comment


def _address(host: str) -> int:
    try:
        return int(ipaddress.IPv4Address(host))
    except ValueError:
        return ELSEWHERE


def _packet(source: Place, target: Place, sequence: int, acknowledged: int, payload: bytes) -> bytes:
    tcp = struct.pack(">HHIIBBHHH", source[1], target[1], sequence, acknowledged, 5 << 4, PUSH_AND_ACK, 65535, 0, 0)
    length = 20 + len(tcp) + len(payload)
    bare = struct.pack(">BBHHHBBHII", 0x45, 0, length, 0, 0x4000, 64, 6, 0, source[0], target[0])
    total = sum(struct.unpack(">10H", bare))
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return bare[:10] + struct.pack(">H", checksum) + bare[12:] + tcp + payload


def _block(at_s: float, packet: bytes, comment: str) -> bytes:
    at_us, encoded = round(at_s * 1_000_000), comment.encode()
    options = struct.pack("<HH", COMMENT, len(encoded)) + _pad(encoded) + bytes(4)
    length = 32 + len(_pad(packet)) + len(options)
    head = struct.pack("<IIIIIII", 6, length, 0, at_us >> 32, at_us & 0xFFFFFFFF, len(packet), len(packet))
    return head + _pad(packet) + options + struct.pack("<I", length)


def _pad(content: bytes) -> bytes:
    return content + bytes(-len(content) % 4)
