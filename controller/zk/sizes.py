"""Computes sizes of ZooKeeper requests, and splits work into transactions within the limit.

A server closes the connection without a reason when a request exceeds `jute.maxbuffer` bytes, and again on each retry.
So the adapters send no such request: they raise `TooLarge`, and a caller with more to write splits it first. Responses
may be of any length. Source: ZooKeeper's `NIOServerCnxn` and `zookeeper.jute`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar, assert_never

from anabranch.controller.zk.access import Access, access_to
from anabranch.controller.zk.session import Check, Create, Delete, Op, Set, TooLarge

T = TypeVar("T")

REQUEST_BYTES_MAX: Final = 0xFFFFF
"""The default `jute.maxbuffer` of a server."""
TRANSACTION_BYTES: Final = REQUEST_BYTES_MAX // 2
"""The target size of split work: well below the limit, and short enough for other requests."""
ZNODE_BYTES_MAX: Final = REQUEST_BYTES_MAX * 3 // 4
"""The limit of a topic's znode, which is replaced as a whole: the rest is for states in the same transaction."""
_REQUEST_HEADER: Final = 8  # xid, type
_OP_HEADER: Final = 9  # type, done, error
_LENGTH: Final = 4
_VERSION: Final = 4
_FLAGS: Final = 4
_WORLD: Final = 4 + (_LENGTH + len("world")) + (_LENGTH + len("anyone"))
_CREATOR: Final = 4 + (_LENGTH + len("auth")) + _LENGTH
_ACL_BYTES: Final = {
    Access.OPEN: _LENGTH + _WORLD,
    Access.READABLE: _LENGTH + _CREATOR + _WORLD,
    Access.PRIVATE: _LENGTH + _CREATOR,
}


def bytes_of(op: Op, root: str = "", *, secured: bool = False) -> int:
    """Return the size of an operation in a multi, in bytes; `secured`: new znodes get an owner."""
    size = _OP_HEADER + _LENGTH + len(f"{root}{op.path}".encode())
    match op:
        case Create():
            return size + _LENGTH + len(op.data) + _ACL_BYTES[access_to(op.path, secured=secured)] + _FLAGS
        case Set():
            return size + _LENGTH + len(op.data) + _VERSION
        case Delete() | Check():
            return size + _VERSION
        case _:
            assert_never(op)


def multi_bytes(ops: Iterable[Op], root: str = "", *, secured: bool = False) -> int:
    """Return the size of a multi, in bytes."""
    return _REQUEST_HEADER + sum(bytes_of(op, root, secured=secured) for op in ops) + _OP_HEADER


def check_multi(ops: Sequence[Op], root: str = "", *, secured: bool = False) -> None:
    """Raise TooLarge if a server would refuse this multi; it names the largest operation."""
    size = multi_bytes(ops, root, secured=secured)
    if size > REQUEST_BYTES_MAX:
        largest = max(range(len(ops)), key=lambda place: bytes_of(ops[place], root))
        raise TooLarge(ops[largest].path, largest, size_bytes=size)


def check_write(op: Create | Set, root: str = "", *, secured: bool = False) -> None:
    """Raise TooLarge if a server would refuse this operation as its own request."""
    size = _REQUEST_HEADER + bytes_of(op, root, secured=secured) - _OP_HEADER
    if size > REQUEST_BYTES_MAX:
        raise TooLarge(op.path, size_bytes=size)


def pieces(items: Iterable[T], size_of: Callable[[T], int], *, count_max: int, bytes_max: int) -> Iterator[list[T]]:
    """Yield the items in order, in lists within both limits; one that is too large by itself comes alone."""
    piece: list[T] = []
    size = 0
    for item in items:
        item_bytes = size_of(item)
        if piece and (len(piece) == count_max or size + item_bytes > bytes_max):
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += item_bytes
    if piece:
        yield piece
