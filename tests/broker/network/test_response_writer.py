"""Responses leave together, in order, and no faster than the peer reads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from anabranch.broker.authorization.peer import UNKNOWN_PEER, Peer
from anabranch.broker.network.response_queue import PIECE_BYTES
from anabranch.broker.network.response_writer import BATCHED_RESPONSE_BYTES_MAX, TLS_PIECE_BYTES, ResponseWriter
from anabranch.broker.network.turn_writer import TurnWriter
from anabranch.broker.quotas.response_memory import ResponseMemory


class Transport:
    """A transport that keeps each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def writelines(self, data: list[bytes]) -> None:
        self.writes.append(b"".join(data))

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 7

    def get_extra_info(self, name: str) -> None:
        """No socket: the system counts nothing."""

    def set_write_buffer_limits(self, high: int) -> None:
        """No limit: the test calls `pause`."""


@dataclass
class Connection:
    """A connection and its server."""

    transport: Transport = field(default_factory=Transport)
    response_memory: ResponseMemory = field(default_factory=lambda: ResponseMemory(1 << 30, 600.0))
    sent_bytes: int = 0
    held_response_bytes: int = 0
    peer: Peer = UNKNOWN_PEER

    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        self.turn_writer = TurnWriter(asyncio.get_running_loop())
        self.writer = ResponseWriter(self, self)
        self.writer.use(cast(asyncio.Transport, self.transport))

    @property
    def unsent_bytes(self) -> int:
        return self.writer.unsent_bytes

    def abort(self) -> None:
        """Not called: the peer reads."""


async def test_responses_are_written_together_and_counted() -> None:
    one = Connection()
    one.writer.send()
    assert one.transport.writes == []
    one.writer.add([b"a"])
    one.writer.add([b"bc", b"d"])
    assert one.writer.size_bytes == 4
    one.writer.send()
    one.writer.add([b"e"])
    one.writer.send()
    assert (one.transport.writes, one.sent_bytes, one.writer.size_bytes) == ([b"abcd", b"e"], 5, 0)


@pytest.mark.parametrize(
    ("size_bytes", "sends_alone", "waits"),
    [
        (BATCHED_RESPONSE_BYTES_MAX, False, True),
        (BATCHED_RESPONSE_BYTES_MAX + 1, False, False),
        (1, True, False),
    ],
)
async def test_response_waits_for_those_of_other_connections(size_bytes: int, sends_alone: bool, waits: bool) -> None:
    one = Connection()
    one.turn_writer.write(lambda: None)  # the first of its turn, which never waits
    one.writer.sends_alone = sends_alone
    one.writer.add([bytes(size_bytes)])
    one.writer.send_with_others()
    assert one.transport.writes == ([] if waits else [bytes(size_bytes)])
    await asyncio.sleep(0)
    assert one.transport.writes == [bytes(size_bytes)]


async def test_unread_response_is_written_in_pieces_and_held_until_it_is_read() -> None:
    one, large = Connection(), bytes(2 * PIECE_BYTES + 1)
    one.writer.pause()
    one.writer.add([large])
    one.writer.send()
    one.writer.add([b"next"])
    one.writer.send()
    one.writer.close()
    assert (one.transport.writes, one.transport.closed) == ([], False)
    assert one.held_response_bytes == one.unsent_bytes == len(large) + len(b"next") + 7
    one.writer.resume()
    assert b"".join(one.transport.writes) == large + b"next"
    assert max(map(len, one.transport.writes)) == PIECE_BYTES
    await asyncio.sleep(0)
    assert (one.transport.closed, one.held_response_bytes, one.unsent_bytes) == (True, 0, 7)
    one.response_memory.close()


async def test_requests_wait_only_for_more_than_a_piece_of_unread_responses() -> None:
    one = Connection()
    one.writer.pause()
    for size_bytes, waits in ((PIECE_BYTES - 7, False), (1, True)):
        one.writer.add([bytes(size_bytes)])
        one.writer.send()
        assert one.writer.is_paused == waits
    assert one.held_response_bytes == PIECE_BYTES + 1
    one.writer.resume()
    assert (one.writer.is_paused, one.held_response_bytes) == (False, 0)
    one.response_memory.close()


async def test_transport_with_tls_gets_short_pieces() -> None:
    one = Connection()
    one.transport.get_extra_info = {"sslcontext": object()}.get  # type: ignore[method-assign,assignment]
    one.writer.use(cast(asyncio.Transport, one.transport))
    one.writer.add([bytes(3 * TLS_PIECE_BYTES)])
    one.writer.send()
    assert list(map(len, one.transport.writes)) == [TLS_PIECE_BYTES] * 3


async def test_lost_connection_drops_its_responses() -> None:
    one = Connection()
    one.writer.pause()
    one.writer.add([bytes(2 * PIECE_BYTES)])
    one.writer.send()
    one.writer.drop()
    one.writer.add([b"later"])
    one.writer.send()
    one.writer.resume()
    assert (one.transport.writes, one.held_response_bytes, one.writer._unsent.size_bytes) == ([], 0, 0)
    one.response_memory.close()
