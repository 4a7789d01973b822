"""How a fenced producer is told so: PRODUCER_FENCED is an error code that older clients do not know (KIP-588)."""

from __future__ import annotations

from anabranch.protocol.errors import ErrorCode, KafkaError


def code_for(error: KafkaError, *, knows_fenced: bool) -> ErrorCode:
    """The code to answer; a client that does not know PRODUCER_FENCED hears what used to be said."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
