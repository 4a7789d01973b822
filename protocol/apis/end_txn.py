"""EndTxn (key 26), v0-v4, flexible from v3."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Int16, Int32, Int64, Text, always


@dataclass(slots=True, kw_only=True)
class EndTxnRequest:
    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean


@dataclass(slots=True, kw_only=True)
class EndTxnResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
