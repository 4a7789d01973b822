"""Chooses the error code for a fenced producer: older clients do not know PRODUCER_FENCED (KIP-588)."""

from __future__ import annotations

from anabranch.protocol.errors import ErrorCode, KafkaError


def code_for(error: KafkaError, *, knows_fenced: bool) -> ErrorCode:
    """The code to answer; for a client that does not know PRODUCER_FENCED, the one that was used before it."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
