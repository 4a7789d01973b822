"""Chooses the error code for a fenced producer: older clients do not know PRODUCER_FENCED (KIP-588)."""

from __future__ import annotations

from anabranch.protocol.errors import ErrorCode, KafkaError


def code_for(error: KafkaError, *, knows_fenced: bool) -> ErrorCode:
    """Return the code of an error, or its predecessor for a client that does not know PRODUCER_FENCED."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
