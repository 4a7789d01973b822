"""Repeated requests are detected, and a session ends with its connection."""

from __future__ import annotations

import pytest

from anabranch.broker.coordinators.share_partitions.share_sessions import CLOSE_EPOCH, LAST_EPOCH, ShareSessions
from anabranch.protocol.errors import ErrorCode, KafkaError

A, B = (bytes(16), 0), (bytes(16), 1)


def refusal(sessions: ShareSessions, member: str, epoch: int) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        sessions.admit("g", member, epoch)
    return refused.value.code


def test_share_session_epoch_advances_with_each_request() -> None:
    sessions = ShareSessions()
    assert refusal(sessions, "m", 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    session = sessions.open("g", "m", "connection", 10)
    assert sessions.admit("g", "m", 1) is session
    assert refusal(sessions, "m", 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = LAST_EPOCH
    sessions.admit("g", "m", LAST_EPOCH)
    assert sessions.admit("g", "m", 1) is session
    assert sessions.admit("g", "m", CLOSE_EPOCH) is session and sessions.has("g")
    sessions.close(session)
    assert refusal(sessions, "m", CLOSE_EPOCH) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_share_session_limit_is_enforced_and_a_member_may_reopen_its_session() -> None:
    sessions = ShareSessions()
    first = sessions.open("g", "m", "connection", 1)
    with pytest.raises(KafkaError) as refused:
        sessions.open("g", "other", "connection", 1)
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.open("g", "m", "another connection", 1) is not first
    assert sessions.leave("connection") == []
    assert sessions.has("g")
    assert [one.member for one in sessions.leave("another connection")] == ["m"]
    assert len(sessions) == 0 and not sessions.has("g")


def test_partitions_are_rotated() -> None:
    session = ShareSessions().open("g", "m", None, 1)
    assert session.rotate() == []
    session.update([A, B], [])
    assert session.rotate() != session.rotate()
    session.update([], [A, A])
    assert session.rotate() == [B]
