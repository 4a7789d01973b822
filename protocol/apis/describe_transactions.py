"""DescribeTransactions (key 65), v0, flexible from v0."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, always, message


@message
class DescribeTransactionsRequest:
    transactional_ids: list[Text]


@message
class TopicData:
    topic: Text
    partitions: list[Int32]


@message
class TransactionState:
    error_code: Int16
    transactional_id: Text
    transaction_state: Text
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


@message
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    transaction_states: list[TransactionState]
