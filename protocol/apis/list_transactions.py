"""ListTransactions (key 66), v0-v2, flexible from v0.

v1   those that have been open for so long                               KIP-994
v2   those whose transactional id matches a regular expression           KIP-1152
"""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Int64, Text, always, message, since


@message
class ListTransactionsRequest:
    state_filters: list[Text]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = since(1, absent=-1)
    transactional_id_pattern: Text | None = since(2, absent=None)


@message
class TransactionState:
    transactional_id: Text
    producer_id: Int64
    transaction_state: Text


@message
class ListTransactionsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    unknown_state_filters: list[Text]
    transaction_states: list[TransactionState]
