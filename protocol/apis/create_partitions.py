"""CreatePartitions (key 37), v0-v3, flexible from v2: change a topic's partition count; with our tag also to fewer.

v1   the broker answers first and throttles after                        KIP-219
v2   flexible; ours: `allow_shrink` as a tagged field                    KIP-253, D3
v3   THROTTLING_QUOTA_EXCEEDED may be answered                           KIP-599
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Text, always, message, tagged


@message
class CreatePartitionsAssignment:
    broker_ids: list[Int32]


@message
class CreatePartitionsTopic:
    name: Text
    count: Int32
    """The total, not how many more."""
    assignments: list[CreatePartitionsAssignment] | None
    """For the new partitions only; null leaves it to the controller."""
    allow_shrink: Boolean = tagged(2530, since=2, absent=False)
    """Without it a smaller count is refused, as Kafka always does."""


@message
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Boolean


@message
class CreatePartitionsTopicResult:
    name: Text
    error_code: Int16
    error_message: Text | None = always(absent=None)


@message
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[CreatePartitionsTopicResult]
