"""The bytes of multi-reads, which kazoo does not support (ZooKeeper's request 22)."""

from __future__ import annotations

import struct

import pytest

from anabranch.controller.zk.multi_read import NO_NODE, MultiRead
from anabranch.controller.zk.session import Stat

LAST = struct.pack("!i?i", -1, True, -1)
STAT = struct.pack("!qqqqiiiqiiq", 11, 12, 0, 0, 3, 0, 0, 0x77, 0, 5, 0)


def found(data: bytes | None) -> bytes:
    length = struct.pack("!i", -1 if data is None else len(data))
    return struct.pack("!i?i", 4, False, 0) + length + (data or b"") + STAT


def test_request_has_each_path_without_a_watch() -> None:
    one = struct.pack("!i?i", 4, False, -1)
    body = one + struct.pack("!i", 2) + b"/a\0" + one + struct.pack("!i", 4) + "/\u00e4b".encode() + b"\0" + LAST
    assert MultiRead(["/a", "/\u00e4b"]).serialize() == body


def test_response_has_data_and_stat_or_error_for_each_path() -> None:
    missing = struct.pack("!i?ii", -1, False, NO_NODE, NO_NODE)
    stat = Stat(11, 12, 3, 0x77, 5)
    answer = b"head" + found(b"xyz") + missing + found(None) + found(b"") + LAST
    assert MultiRead.deserialize(answer, 4) == [(b"xyz", stat), NO_NODE, (b"", stat), (b"", stat)]


def test_truncated_response_is_refused() -> None:
    whole = found(b"xyz") + LAST
    for end in range(len(whole)):
        with pytest.raises(struct.error):
            MultiRead.deserialize(whole[:end], 0)
