"""Envelope: a request that one broker forwards for its client to another (KIP-590).

Version 0. Brokers of a ZooKeeper cluster hand nothing on in this form, and none of them may be sent one: as in Kafka
without a migration to KRaft, the connection is closed.
"""

from __future__ import annotations

from typing import NoReturn

from anabranch.broker.dispatch.request_context import CloseConnection, RequestContext, handles
from anabranch.protocol.apis.envelope import EnvelopeRequest


@handles(EnvelopeRequest, versions="0")
async def envelope(ctx: RequestContext, request: EnvelopeRequest) -> NoReturn:
    """Refuse by closing."""
    raise CloseConnection("it sent an Envelope although forwarding is not enabled")
