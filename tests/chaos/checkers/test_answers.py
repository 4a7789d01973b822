"""Error codes in responses: the smallest violation, and its near miss."""

from __future__ import annotations

import pytest

from anabranch.chaos.checkers.answers import CHECKERS
from anabranch.protocol.errors import ErrorCode
from tests.chaos.checkers.story import Build, Cases, Story

case = Cases(CHECKERS)


def answered(api: str, version: int, code: ErrorCode) -> Build:
    return lambda s: s.history.answers.update([(api, version, code)])


@case("A26 unexpected-error")
def _() -> tuple[Build, Build]:
    late = ErrorCode.TRANSACTION_ABORTABLE
    return answered("TxnOffsetCommit", 3, late), answered("TxnOffsetCommit", 4, late)


@case("A26 unexpected-error")
def _() -> tuple[Build, Build]:
    return answered("Fetch", 17, ErrorCode.INVALID_PRODUCER_EPOCH), answered("Fetch", 17, ErrorCode.OFFSET_OUT_OF_RANGE)


@case("A26 unexpected-error")
def _() -> tuple[Build, Build]:
    return answered("Fetch", 12, ErrorCode.UNKNOWN_TOPIC_ID), answered("Fetch", 13, ErrorCode.UNKNOWN_TOPIC_ID)


@case("A26 unexpected-error")
def _() -> tuple[Build, Build]:
    return answered("Produce", 11, ErrorCode.UNKNOWN_SERVER_ERROR), answered("Produce", 11, ErrorCode.NONE)


@case("A26 unexpected-error")
def _() -> tuple[Build, Build]:
    return answered("DescribeLogDirs", 4, ErrorCode.NOT_CONTROLLER), answered("DescribeLogDirs", 4, ErrorCode.NONE)


@case.pair("A26 unexpected-error", False, True)
def _(s: Story, authorizes: bool) -> None:
    s.history.authorizes = authorizes
    answered("Fetch", 17, ErrorCode.GROUP_AUTHORIZATION_FAILED)(s)


@pytest.mark.parametrize(("checker", "bad", "near"), case.rows)
def test_checker_flags_bad_history_and_not_the_near_miss(checker: str, bad: Build, near: Build) -> None:
    case.hold(checker, bad, near)


def test_every_checker_has_a_case() -> None:
    assert case.are_complete()
