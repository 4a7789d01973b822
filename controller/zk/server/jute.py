"""Jute, the encoding of ZooKeeper's messages: big-endian numbers, and bytes, text and lists with their length first.

Reading trusts no length: what would exceed the message raises MalformedRequest before anything is allocated. A null
reads as empty, as clients treat both alike. Source: ZooKeeper's `BinaryInputArchive` and `BinaryOutputArchive`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from anabranch.controller.zk.tree import Znode

T = TypeVar("T")

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_ACL_VERSION: Final = 0


class MalformedRequest(Exception):
    """A message that no ZooKeeper client sends; its connection is closed."""


class JuteReader:
    """Reads one message from its start to its end."""

    __slots__ = ("_at", "_message")

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._message) - self._at

    def integer(self) -> int:
        """Read a signed number of 4 bytes."""
        return int(_INT.unpack(self._take(4))[0])

    def long(self) -> int:
        """Read a signed number of 8 bytes."""
        return int(_LONG.unpack(self._take(8))[0])

    def boolean(self) -> bool:
        """Read a byte as a truth value."""
        return self._take(1) != b"\0"

    def buffer(self) -> bytes:
        """Read bytes."""
        return self._take(max(self.integer(), 0))

    def text(self) -> str:
        """Read UTF-8."""
        try:
            return self.buffer().decode()
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"a text that is not UTF-8: {error}") from None

    def many(self, read_one: Callable[[], T], size_min: int) -> list[T]:
        """Read a list of elements, each of at least `size_min` bytes."""
        count = self.integer()
        if count * size_min > self.left:
            raise MalformedRequest(f"a list of {count:,} elements in {self.left:,} bytes")
        return [read_one() for _ in range(count)]

    def texts(self) -> list[str]:
        """Read a list of texts."""
        return self.many(self.text, 4)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._message):
            raise MalformedRequest(f"a message that ends {end - len(self._message):,} bytes early")
        taken = self._message[self._at : end]
        self._at = end
        return taken


def integer(number: int) -> bytes:
    """Encode a number in 4 bytes."""
    return _INT.pack(number)


def buffer(data: bytes) -> bytes:
    """Encode bytes."""
    return _INT.pack(len(data)) + data


def text(value: str) -> bytes:
    """Encode UTF-8."""
    return buffer(value.encode())


def texts(values: Iterable[str]) -> bytes:
    """Encode a list of texts."""
    encoded = [text(one) for one in values]
    return b"".join((_INT.pack(len(encoded)), *encoded))


def stat(node: Znode) -> bytes:
    """Encode the stat of a znode: clients see the creations and deletions of children as one count (`DataTree`)."""
    changes_of_children = 2 * node.created - len(node.children)
    return _STAT.pack(
        node.czxid,
        node.mzxid,
        node.ctime_ms,
        node.mtime_ms,
        node.version,
        changes_of_children,
        _ACL_VERSION,
        node.owner,
        len(node.data),
        len(node.children),
        node.pzxid,
    )
