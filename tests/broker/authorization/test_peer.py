"""A peer is named by its address; a principal's name may contain colons."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.broker.authorization.peer import Peer


def test_unauthenticated_peer_is_anonymous() -> None:
    assert Peer("10.0.0.1", 5000).principal == "User:ANONYMOUS"
    assert Peer("10.0.0.1", 5000).user == "ANONYMOUS"


def test_user_name_may_contain_colons() -> None:
    assert Peer("::1", 5000, "User:a:b").user == "a:b"
    assert str(Peer("::1", 5000, "User:a:b")) == "[::1]:5000"


def test_peer_is_the_same_before_and_after_its_login() -> None:
    """The connection's state is shared, and no part of its identity."""
    before = Peer("::1", 5000)
    after = dataclasses.replace(before, principal="User:a")
    before.connection.is_lost = True
    assert after.connection.is_lost and after == Peer("::1", 5000, "User:a") and "lost" not in repr(after)


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::00ff", "2001:db8:0:0:0:0:0:ff"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_acl_host_has_javas_notation(address: str, written: str) -> None:
    assert Peer(address).acl_host == written
