"""Sizes of ZooKeeper requests, and work that is split to fit."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from anabranch.controller.zk.session import Check, Create, Delete, Set, TooLarge
from anabranch.controller.zk.sizes import REQUEST_BYTES_MAX, bytes_of, check_multi, check_write, multi_bytes, pieces


def test_bytes_are_counted_with_chroot_and_in_utf_8() -> None:
    for op in (Create("/a", b"12"), Set("/a", b"12", 0), Delete("/a", 0), Check("/a", 0)):
        longer = type(op)(**{**vars_of(op), "path": "/\u00e4"})
        assert bytes_of(longer) == bytes_of(op) + 1
        assert bytes_of(op, "/root") == bytes_of(op) + 5
    assert bytes_of(Create("/a", b"123")) == bytes_of(Create("/a", b"12")) + 1


@pytest.mark.parametrize(
    ("path", "secured", "acl"),
    [
        ("/a", False, OPEN_ACL_UNSAFE),
        ("/a", True, [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/config/users/alice", True, CREATOR_ALL_ACL),
        ("/consumers", True, OPEN_ACL_UNSAFE),
    ],
)
def test_size_of_multi_equals_bytes_written_by_kazoo(path: str, secured: bool, acl: list[ACL]) -> None:
    ops = [Create(path, b"12"), Set("/b", b"345", 7), Delete("/c", 1), Check("/d", 2)]
    written = serialization.Transaction(
        [
            serialization.Create(path, b"12", acl, 0),
            serialization.SetData("/b", b"345", 7),
            serialization.Delete("/c", 1),
            serialization.CheckVersion("/d", 2),
        ]
    ).serialize()
    assert multi_bytes(ops, secured=secured) == len(written) + len(struct.pack("!ii", 1, 14))


def vars_of(op: object) -> dict[str, object]:
    return {name: getattr(op, name) for name in op.__match_args__}  # type: ignore[attr-defined]


def test_too_large_multi_names_its_largest_operation() -> None:
    half = REQUEST_BYTES_MAX // 2
    ops = [Create("/a", b"x" * (half - 200)), Create("/b", b"x" * (half - 100)), Delete("/c", 0)]
    check_multi(ops)
    assert multi_bytes(ops) < REQUEST_BYTES_MAX
    with pytest.raises(TooLarge, match="/b"):
        check_multi([*ops, Create("/d", b"x" * 300)])
    with pytest.raises(TooLarge, match="/e"):
        check_write(Set("/e", b"x" * REQUEST_BYTES_MAX, 0))


@given(st.lists(st.integers(0, 30)), st.integers(1, 5), st.integers(1, 60))
def test_pieces_keep_order_and_both_limits(items: list[int], count_max: int, bytes_max: int) -> None:
    cut = list(pieces(items, lambda size: size, count_max=count_max, bytes_max=bytes_max))
    assert [item for piece in cut for item in piece] == items
    for piece in cut:
        assert 1 <= len(piece) <= count_max
        assert sum(piece) <= bytes_max or len(piece) == 1, "one that is too large by itself comes alone"
    for one, other in itertools.pairwise(cut):
        assert len(one) == count_max or sum(one) + other[0] > bytes_max, "no piece is smaller than it need be"
