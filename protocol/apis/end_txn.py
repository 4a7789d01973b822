"""EndTxn (key 26), v0-v4, flexible from v3."""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Int64, Text, always, message


@message
class EndTxnRequest:
    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean


@message
class EndTxnResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
