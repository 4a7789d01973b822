"""WriteTxnMarkers (key 27), v0-v1, flexible from v1."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Int16, Int32, Int64, Text


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerTopic:
    name: Text
    partition_indexes: list[Int32]


@dataclass(slots=True, kw_only=True)
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32


@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker]


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerTopicResult:
    name: Text
    partitions: list[WritableTxnMarkerPartitionResult]


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult]
