"""The meaning of the controller's error codes for a proposed ISR."""

from __future__ import annotations

import pytest

from anabranch.broker.replication.isr_change import Verdict, verdict_of
from anabranch.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("verdict", "codes"),
    [
        (Verdict.COMMITTED, {ErrorCode.NONE}),
        (Verdict.REVERTED, {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA}),
        (
            Verdict.WAITING,
            {
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_ID,
                ErrorCode.FENCED_LEADER_EPOCH,
                ErrorCode.INVALID_UPDATE_VERSION,
                ErrorCode.INVALID_REQUEST,
                ErrorCode.NEW_LEADER_ELECTED,
            },
        ),
    ],
)
def test_error_codes_of_alter_partition_end_or_keep_the_proposal(verdict: Verdict, codes: set[ErrorCode]) -> None:
    assert {code for code in ErrorCode if verdict_of(code) is verdict} == codes


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.REQUEST_TIMED_OUT])
def test_unrelated_error_code_is_retried(code: ErrorCode) -> None:
    assert verdict_of(code) is Verdict.RETRY
