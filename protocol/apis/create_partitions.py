"""CreatePartitions (key 37), v0-v3, flexible from v2.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Int16, Int32, Text, always, tagged


@dataclass(slots=True, kw_only=True)
class CreatePartitionsAssignment:
    broker_ids: list[Int32]


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopic:
    name: Text
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None
    allow_shrink: Boolean = tagged(2530, since=2, absent=False)


@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Boolean


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    name: Text
    error_code: Int16
    error_message: Text | None = always(absent=None)


@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[CreatePartitionsTopicResult]
