"""EndTxn (key 26), v0-v5, flexible from v3.

v4   TRANSACTION_ABORTABLE may be answered                               KIP-890
v5   each end of a transaction takes the next producer epoch, which is in the answer  KIP-890
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Int64, Text, always, message, since


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
    producer_id: Int64 = since(5, absent=-1)
    producer_epoch: Int16 = since(5, absent=-1)
