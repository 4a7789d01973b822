"""Which paths a znode may have; tests/contracts/test_zk_answers.py compares such paths with the real server."""

from __future__ import annotations

import pytest

from anabranch.controller.zk.server.requests import is_valid_path


@pytest.mark.parametrize("path", ["/", "/a", "/a/b.c", "/..a/.b", "/a b", "/ü", "/a/zookeeper-0000000001"])
def test_valid_paths(path: str) -> None:
    assert is_valid_path(path)


@pytest.mark.parametrize(
    "path",
    ["", "a", "/a/", "//", "/a//b", "/.", "/..", "/a/./b", "/a/../b", "/\0", "/\x1f", "/\x7f", "/\uf000", "/\uffff"],
)
def test_invalid_paths(path: str) -> None:
    assert not is_valid_path(path)
