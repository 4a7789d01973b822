"""The partitions of an incremental Fetch are known from the session's beginning."""

from __future__ import annotations

from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from anabranch.proxy.fetch_sessions import SESSIONS_MAX, FetchSessions


def fetch(epoch: int, *partitions: int, session: int = 0, forgotten: tuple[int, ...] = ()) -> FetchRequest:
    rows = [FetchPartition(partition=one, fetch_offset=0, partition_max_bytes=1) for one in partitions]
    gone = [ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else []
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=rows)] if rows else [],
        forgotten_topics_data=gone,
    )


def test_fetch_session_is_tracked_from_start_to_end() -> None:
    sessions = FetchSessions()
    assert sessions.knows(fetch(0, 1)) and sessions.knows(fetch(-1, 1)) and not sessions.knows(fetch(3, 1, session=9))
    sessions.on_request(fetch(0, 1, 2), 9)
    assert sessions.knows(fetch(1, session=9)) and sessions.places(9) == [("t", 1), ("t", 2)]
    sessions.on_request(fetch(1, 3, session=9, forgotten=(1,)), 9)
    assert sessions.places(9) == [("t", 2), ("t", 3)] and sessions.places(8) == []
    sessions.on_request(fetch(-1, 5, session=9), 0)
    assert not len(sessions)


def test_tracked_sessions_are_bounded() -> None:
    sessions = FetchSessions()
    for number in range(1, SESSIONS_MAX + 3):
        sessions.on_request(fetch(0, 1), number)
    assert len(sessions) == SESSIONS_MAX and sessions.places(1) == []
    sessions.clear()
    assert not len(sessions)
