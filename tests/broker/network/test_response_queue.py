"""Buffers leave in order and in pieces, and count while any part is in memory."""

from __future__ import annotations

import asyncio
import random
from typing import cast

from anabranch.broker.network.response_queue import PIECE_BYTES, ResponseQueue


class Written:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))


def test_buffers_are_written_in_order_and_in_pieces() -> None:
    rng = random.Random(5)
    for _ in range(50):
        queue, written = ResponseQueue(), Written()
        sent = b""
        for _ in range(rng.randint(1, 4)):
            sizes = rng.choices((1, 100, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES // 2), k=3)
            buffers: list[bytes | bytearray | memoryview] = [rng.randbytes(size) for size in sizes]
            queue.add(buffers, sum(sizes))
            sent += b"".join(buffers)
            queue.write_piece(cast(asyncio.Transport, written))
        while queue.size_bytes:
            before_bytes = queue.unsent_bytes
            queue.write_piece(cast(asyncio.Transport, written))
            assert queue.unsent_bytes == before_bytes - len(written.pieces[-1])
        assert b"".join(written.pieces) == sent
        assert max(map(len, written.pieces)) <= PIECE_BYTES
        assert queue.unsent_bytes == 0


def test_partly_sent_buffer_counts_with_its_full_size() -> None:
    queue, written = ResponseQueue(), Written()
    queue.add([bytes(3 * PIECE_BYTES), bytes(1)], 3 * PIECE_BYTES + 1)
    queue.write_piece(cast(asyncio.Transport, written))
    assert (queue.size_bytes, queue.unsent_bytes) == (3 * PIECE_BYTES + 1, 2 * PIECE_BYTES + 1)
    queue.clear()
    assert (queue.size_bytes, queue.unsent_bytes) == (0, 0)
