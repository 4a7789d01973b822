"""InitProducerId (key 22), v0-v5, flexible from v2.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Int64, Text, always, since


@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest:
    transactional_id: Text | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, absent=-1)
    producer_epoch: Int16 = since(3, absent=-1)


@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    producer_id: Int64 = always(absent=-1)
    producer_epoch: Int16
