"""InitProducerId (key 22), v0-v5, flexible from v2: an identity for an idempotent or transactional producer.

v1   the broker answers first and throttles after                        KIP-219
v3   the present identity, so that its epoch can be bumped instead       KIP-360
v4   PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH                   KIP-588
v5   TRANSACTION_ABORTABLE may be answered                               KIP-890
"""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, always, message, since


@message
class InitProducerIdRequest:
    transactional_id: Text | None
    """Null: idempotence only, any broker may answer."""
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, absent=-1)
    producer_epoch: Int16 = since(3, absent=-1)


@message
class InitProducerIdResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    producer_id: Int64 = always(absent=-1)
    producer_epoch: Int16
