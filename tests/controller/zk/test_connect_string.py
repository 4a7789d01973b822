"""A connect string names servers, with or without ports, and a chroot."""

from __future__ import annotations

import pytest

from anabranch.controller.zk.connect_string import parse_connect_string


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("one", [("one", 2181)], ""),
        ("127.0.0.1:1, localhost:2,[::1]:3/a/b", [("127.0.0.1", 1), ("localhost", 2), ("::1", 3)], "/a/b"),
        ("[::1],[fe80::1%eth0]", [("::1", 2181), ("fe80::1%eth0", 2181)], ""),
    ],
)
def test_servers_and_chroot_are_parsed(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    assert parse_connect_string(text) == (tuple(servers), chroot)


@pytest.mark.parametrize(
    "text", ["", "a,", ":2181", "::1", "::1:2181", "a:x", "a:65536", "a..b", "[::1", "[a]:1", "/a"]
)
def test_malformed_connect_string_is_refused_with_syntax(text: str) -> None:
    with pytest.raises(ValueError, match="write HOST:PORT"):
        parse_connect_string(text)
