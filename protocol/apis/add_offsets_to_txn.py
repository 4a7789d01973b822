"""AddOffsetsToTxn (key 25), v0-v4, flexible from v3."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Int64, Text, always


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnRequest:
    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    group_id: Text


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
