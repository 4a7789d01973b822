"""AllocateProducerIds (key 67), v0, flexible from v0."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, always, message


@message
class AllocateProducerIdsRequest:
    broker_id: Int32
    broker_epoch: Int64 = always(absent=-1)


@message
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32
