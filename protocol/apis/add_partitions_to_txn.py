"""AddPartitionsToTxn (key 24), v0-v5, flexible from v3."""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Int64, Text, always, message, since, until


@message
class AddPartitionsToTxnTopic:
    name: Text
    partitions: list[Int32]


@message
class AddPartitionsToTxnTransaction:
    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Boolean = always(absent=False)
    topics: list[AddPartitionsToTxnTopic]


@message
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = since(4, absent=list)
    v3_and_below_transactional_id: Text = until(3, absent="")
    v3_and_below_producer_id: Int64 = until(3, absent=0)
    v3_and_below_producer_epoch: Int16 = until(3, absent=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = until(3, absent=list)


@message
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@message
class AddPartitionsToTxnTopicResult:
    name: Text
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@message
class AddPartitionsToTxnResult:
    transactional_id: Text
    topic_results: list[AddPartitionsToTxnTopicResult]


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16 = since(4, absent=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4, absent=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = until(3, absent=list)
