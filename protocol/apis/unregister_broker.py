"""UnregisterBroker (key 64), v0, flexible from v0: remove the registration of a broker (KIP-746)."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, always, message


@message
class UnregisterBrokerRequest:
    broker_id: Int32


@message
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
