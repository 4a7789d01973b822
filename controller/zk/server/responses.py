"""The messages of the built-in ZooKeeper server, encoded without their length. Source: `zookeeper.jute`."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from anabranch.controller.zk.server import jute
from anabranch.controller.zk.server.requests import Code, OpCode
from anabranch.controller.zk.session import WatchEvent
from anabranch.controller.zk.tree import Znode

EVENT_XID: Final = -1
CONNECTED: Final = 3
EVENT_TYPES: Final = {"created": 1, "deleted": 2, "changed": 3, "children": 4}
PASSWORD_BYTES: Final = 16
_HEADER: Final = struct.Struct(">iqi")
_EVENT: Final = struct.Struct(">ii")
_CONNECT: Final = struct.Struct(">iiq")
_RESULT: Final = struct.Struct(">i?i")
_LAST_RESULT: Final = _RESULT.pack(-1, True, -1)
_WRITABLE: Final = b"\0"
ACL: Final = b"".join((jute.integer(1), jute.integer(31), jute.text("world"), jute.text("anyone")))


def connect_response(
    session_id: int, timeout_ms: int, password: bytes = bytes(PASSWORD_BYTES), *, read_only: bool
) -> bytes:
    """Encode the answer to a connect request; a session of 0 with a timeout of 0 has expired."""
    greeting = _CONNECT.pack(0, timeout_ms, session_id) + jute.buffer(password)
    return greeting + _WRITABLE if read_only else greeting


def response(xid: int, zxid: int, code: int = Code.OK, body: bytes = b"") -> bytes:
    """Encode the response to a request."""
    return _HEADER.pack(xid, zxid, code) + body


def watch_event(event: WatchEvent, zxid: int) -> bytes:
    """Encode the event of a watch."""
    assert event.path is not None
    header = _HEADER.pack(EVENT_XID, zxid, Code.OK)
    return header + _EVENT.pack(EVENT_TYPES[event.kind], CONNECTED) + jute.text(event.path)


def data_body(node: Znode) -> bytes:
    """Encode the data and stat of a znode."""
    return jute.buffer(node.data) + jute.stat(node)


def result(kind: OpCode, body: bytes = b"") -> bytes:
    """Encode the result of one operation of a multi or multiRead."""
    return _RESULT.pack(kind, False, Code.OK) + body


def failed_result(code: int) -> bytes:
    """Encode the error of one operation of a multi or multiRead."""
    return _RESULT.pack(OpCode.ERROR, False, code) + jute.integer(code)


def results_body(results: Iterable[bytes]) -> bytes:
    """Encode all results of a multi or multiRead."""
    return b"".join((*results, _LAST_RESULT))
