"""A client of the built-in ZooKeeper that speaks its protocol without a socket."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from kazoo.protocol import serialization as messages

from anabranch.controller.zk.server.connection import ServerConnection
from anabranch.controller.zk.server.service import ZooKeeperService
from anabranch.controller.zk.tree import ZnodeTree

Event = tuple[int, str]
"""The type and path of a watch's event."""


class FakeTime:
    """The time of a server."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def new_service(clock: FakeTime | None = None, tree: ZnodeTree | None = None) -> ZooKeeperService:
    """A server with a clock that stands, unless the test moves it."""
    return ZooKeeperService(
        ZnodeTree() if tree is None else tree,
        first_session_id=100,
        clock=clock or FakeTime(),
        wall_clock_ms=lambda: 1_700_000_000_000,
    )


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


class Client:
    """One connection, and what came over it."""

    def __init__(self, service: ZooKeeperService) -> None:
        self.received = b""
        self.hung_up = False
        self.connection = ServerConnection(service, "client:1", self._receive, self._on_hang_up)

    def _receive(self, data: bytes) -> None:
        assert not self.hung_up, "nothing is sent over a closed connection"
        self.received += data

    def _on_hang_up(self) -> None:
        self.hung_up = True

    def take(self) -> list[bytes]:
        """The messages that have come since the last call."""
        taken, data, self.received = [], self.received, b""
        while data:
            (length,) = struct.unpack_from(">i", data)
            taken.append(data[4 : 4 + length])
            data = data[4 + length :]
        return taken

    def connect(self, session_id: int = 0, password: bytes = bytes(16), timeout_ms: int = 10_000) -> tuple[int, int]:
        """Open or resume a session; returns its timeout and id."""
        self.connection.receive(connect_request(session_id, password, timeout_ms))
        (answer,) = self.take()
        _, negotiated_ms, granted = struct.unpack_from(">iiq", answer)
        return negotiated_ms, granted

    def ask(self, request: Any, xid: int = 1) -> list[int | Event]:
        """Send a request of kazoo; returns the error codes of responses and the events, in order."""
        self.connection.receive(framed(encoded(request, xid)))
        return told(self.take())


def connect_request(session_id: int = 0, password: bytes = bytes(16), timeout_ms: int = 10_000) -> bytes:
    return framed(messages.Connect(0, 0, timeout_ms, session_id, password, False).serialize())


def encoded(request: Any, xid: int = 1) -> bytes:
    return struct.pack(">ii", xid, request.type) + bytes(request.serialize())


def told(received: Iterable[bytes]) -> list[int | Event]:
    found: list[int | Event] = []
    for message in received:
        xid, _, code = struct.unpack_from(">iqi", message)
        if xid == -1:
            kind, _, length = struct.unpack_from(">iii", message, 16)
            found.append((kind, message[28 : 28 + length].decode()))
        else:
            found.append(code)
    return found
