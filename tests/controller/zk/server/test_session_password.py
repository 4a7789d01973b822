"""The password of a session; tests/anabranch/cluster/test_zookeeper_sessions.py compares it with a real server's."""

from __future__ import annotations

from anabranch.controller.zk.server.session_password import password_of


def test_password_follows_from_the_id() -> None:
    assert password_of(0x100000000000001) == bytes.fromhex("054cc74a37327db215e702e20c73f005")
    assert len({password_of(session_id) for session_id in range(100)}) == 100
