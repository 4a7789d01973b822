"""WriteTxnMarkers (key 27), v0-v2, flexible from v1.

v2   which version of transactions a marker ends                         KIP-1228
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Int64, Text, message, since


@message
class WritableTxnMarkerTopic:
    name: Text
    partition_indexes: list[Int32]


@message
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, absent=0)
    """2: the epoch is newer than that of the records."""


@message
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker]


@message
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@message
class WritableTxnMarkerTopicResult:
    name: Text
    partitions: list[WritableTxnMarkerPartitionResult]


@message
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@message
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult]
