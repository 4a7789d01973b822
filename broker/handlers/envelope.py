"""Envelope: forward a client's request to another broker; always refused (KIP-590).

Version 0. Brokers with ZooKeeper do not use it: the connection is closed, as in Kafka without a migration to KRaft.
"""

from __future__ import annotations

from typing import NoReturn

from anabranch.broker.dispatch.request_context import CloseConnection, RequestContext, handles
from anabranch.protocol.apis.envelope import EnvelopeRequest


@handles(EnvelopeRequest, versions="0")
async def envelope(ctx: RequestContext, request: EnvelopeRequest) -> NoReturn:
    """Close the connection."""
    raise CloseConnection("it sent an Envelope although forwarding is not enabled")
