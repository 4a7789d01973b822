"""A waiting request gets one response: by its event, the member's next request, or the member's end."""

from __future__ import annotations

from anabranch.broker.coordinators.classic_groups.group_state import COMPLETING, PREPARING
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.driver import Driver


def error(drive: Driver, ticket: int) -> ErrorCode | None:
    answer = drive.answers.get(ticket)
    return None if answer is None else ErrorCode(answer.error_code)


def test_second_join_of_a_member_completes_the_first() -> None:
    drive = Driver()
    leader, _ = drive.stable(2)
    first = drive.join(leader)
    assert drive.group.state is PREPARING and error(drive, first) is None
    second = drive.join(leader)
    assert error(drive, first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert error(drive, second) is None


def test_second_sync_of_a_member_completes_the_first() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    drive.join(leader)
    drive.join(follower)
    assert drive.group.state is COMPLETING
    first = drive.sync(follower)
    second = drive.sync(follower)
    assert error(drive, first) is ErrorCode.REBALANCE_IN_PROGRESS and error(drive, second) is None
    drive.sync(leader, {leader: b"x", follower: b"y"})
    drive.persisted()
    assert drive.answers[second].assignment == b"y"


def test_pending_join_fails_when_its_member_leaves() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    waiting = drive.join(leader)
    drive.leave((leader, None))
    assert error(drive, waiting) is ErrorCode.UNKNOWN_MEMBER_ID
    assert drive.answers[waiting].member_id == "", "it has to begin anew"
    assert list(drive.group.members.by_id) == [follower]


def test_session_of_member_with_pending_join_starts_with_the_response() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    drive.join(leader)
    assert drive.group.members.by_id[leader].session_deadline_ms is None
    drive.join(follower)
    member = drive.group.members.by_id[leader]
    assert member.session_deadline_ms == drive.now_ms + member.session_timeout_ms


def test_pending_sync_fails_when_its_member_leaves() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    drive.join(leader)
    drive.join(follower)
    waiting = drive.sync(follower)
    drive.leave((follower, None))
    assert error(drive, waiting) is ErrorCode.UNKNOWN_MEMBER_ID
