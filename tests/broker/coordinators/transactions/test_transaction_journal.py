"""Journal records of a transactional id are read back, except fields that Kafka does not write."""

from __future__ import annotations

import pytest

from anabranch.broker.coordinators.runtime.journal import JournalRecord, TransactionEnd
from anabranch.broker.coordinators.transactions.transaction_journal import (
    TransactionShard,
    group_by_topic,
    record_of,
    restore,
)
from anabranch.broker.coordinators.transactions.transactional_id import EMPTY, ONGOING, PREPARE_ABORT, TransactionState
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.internal_topics import decode_transaction, decode_transaction_key
from tests.broker.coordinators.transactions.test_transactional_id import MOVES, transaction


@pytest.mark.parametrize("state", [one for one in TransactionState if one < 6])
def test_state_is_restored_from_its_record(state: TransactionState) -> None:
    one = transaction(ONGOING if state in (2, 3) else TransactionState(state - 2) if state >= 4 else EMPTY)
    move = MOVES[state](one)
    if state >= 4:
        one.partitions.clear()
    one.complete(move)
    key, value = record_of("tx", move)
    back = restore("tx", value)
    assert decode_transaction_key(key) == back.transactional_id == "tx"
    assert (back.state, back.producer_id, back.producer_epoch) == (state, one.producer_id, one.producer_epoch)
    assert (back.timeout_ms, back.partitions, back.last_update_ms) == (
        one.timeout_ms,
        one.partitions,
        one.last_update_ms,
    )
    assert back.start_ms == (-1 if state is EMPTY else one.start_ms)
    assert (back.last_producer_id, back.last_producer_epoch, back.pending) == (-1, -1, None)


def test_partitions_are_null_without_and_empty_after_a_transaction() -> None:
    assert decode_transaction(record_of("tx", MOVES[EMPTY](transaction()))[1]).transaction_partitions is None
    over = transaction(PREPARE_ABORT)
    assert decode_transaction(record_of("tx", over.prepare_complete(now_ms=1))[1]).transaction_partitions == []


def test_equal_states_have_equal_bytes() -> None:
    rows = group_by_topic({("b", 2), ("a", 1), ("b", 0)})
    assert [(one.topic, one.partition_ids) for one in rows] == [("a", [1]), ("b", [0, 2])]


def test_latest_record_of_an_id_is_applied() -> None:
    shard = TransactionShard(0, 7)
    one = transaction()
    values = [
        record_of("tx", move)[1] for move in (one.prepare_next_epoch(timeout_ms=5, expected_epoch=None, now_ms=9),)
    ]
    shard.apply(JournalRecord("tx", values[0], 0))
    shard.apply(JournalRecord("other", values[0], 1))
    later = record_of("tx", transaction().prepare_add([("t", 4)], now_ms=9))[1]
    shard.apply(JournalRecord("tx", later, 2))
    shard.apply(JournalRecord("other", None, 3))
    shard.apply(JournalRecord("never heard of", None, 4))
    shard.apply(TransactionEnd(7, commit=True))
    assert list(shard.transactions) == ["tx"]
    assert (shard.transactions["tx"].state, shard.transactions["tx"].partitions) == (ONGOING, {("t", 4)})


def test_unknown_status_is_refused() -> None:
    value = bytearray(record_of("tx", MOVES[EMPTY](transaction()))[1])
    value[2 + 8 + 2 + 4] = 99
    with pytest.raises(DecodeError, match="transaction status 99"):
        restore("tx", bytes(value))
