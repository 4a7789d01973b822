"""Goal: a peer is told by its address, and a principal's name may hold what separates it from its type."""

from __future__ import annotations

from anabranch.broker.peer import Peer


def test_who_has_not_authenticated_is_anonymous() -> None:
    assert Peer("10.0.0.1", 5000).principal == "User:ANONYMOUS"
    assert Peer("10.0.0.1", 5000).user == "ANONYMOUS"


def test_the_name_of_a_user_may_hold_colons() -> None:
    assert Peer("::1", 5000, "User:a:b").user == "a:b"
    assert str(Peer("::1", 5000, "User:a:b")) == "::1:5000"
