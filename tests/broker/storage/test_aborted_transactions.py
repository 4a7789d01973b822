from __future__ import annotations

import struct

import pytest

from anabranch.broker.storage.aborted_transactions import (
    AbortedTransaction,
    CleanedTransactions,
    aborted_between,
    decode_aborted,
    decode_aborted_within,
    encode_aborted,
    offset_behind,
)
from anabranch.protocol.records.batch import BatchHeader, read_header
from anabranch.protocol.records.control import ControlRecord, ControlType
from tests.broker.storage.batches import batch

ABORTED = [AbortedTransaction(7, 10, 14, 15), AbortedTransaction(8, 11, 20, 21)]
ABORT, COMMIT = ControlRecord(ControlType.ABORT, 0), ControlRecord(ControlType.COMMIT, 0)


def header(offset: int, producer_id: int = 7, *, transactional: bool = True) -> BatchHeader:
    return read_header(batch(1, producer=(producer_id, 0, 0), transactional=transactional, at=(offset, 1)))


def test_encoded_bytes_equal_kafkas() -> None:
    content = encode_aborted(ABORTED)
    assert content[:34] == struct.pack(">hqqqq", 0, 7, 10, 14, 15)
    assert decode_aborted(content) == ABORTED
    assert decode_aborted(b"") == []


@pytest.mark.parametrize(
    "content", [b"x", encode_aborted(ABORTED)[:-1], b"\1" * 34, struct.pack(">hqqqq", 0, 7, 9, 8, 9)]
)
def test_damaged_transaction_index_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="transaction index"):
        decode_aborted(content)


def test_transaction_index_of_other_offsets_is_refused() -> None:
    content = encode_aborted(ABORTED)
    assert decode_aborted_within(content, 14, 21) == ABORTED
    for other, base_offset, end_offset in ((content, 15, 21), (content, 14, 20), (content + content, 14, 21)):
        with pytest.raises(ValueError, match="markers of other offsets"):
            decode_aborted_within(other, base_offset, end_offset)
    with pytest.raises(ValueError, match="no transaction index"):
        decode_aborted_within(None, 14, 21)


def test_batches_of_an_aborted_transaction_are_discarded() -> None:
    seen = CleanedTransactions(ABORTED)
    assert not seen.discards(header(9)), "an earlier transaction of the same producer"
    assert seen.discards(header(10))
    assert not seen.discards(header(12, transactional=False))
    assert seen.discards(header(12, 8))
    assert not seen.discards_marker(header(14), ABORT), "its records were here a moment ago"
    assert not seen.discards(header(15)), "the next transaction of the producer"
    assert not seen.discards_marker(header(16), COMMIT)
    assert seen.discards_marker(header(17), COMMIT), "nothing of this one was met"
    assert not seen.discards_marker(header(20, 8), ABORT)
    assert seen.retained == ABORTED


def test_markers_of_transactions_without_records_are_discarded() -> None:
    seen = CleanedTransactions(ABORTED)
    assert seen.discards_marker(header(14), ABORT)
    assert seen.discards_marker(header(15), None), "an empty control batch"
    assert not seen.discards_marker(header(16), ControlRecord(ControlType.LEADER_CHANGE)), "not a transaction's"
    assert seen.retained == []


def test_aborted_transactions_overlapping_a_range_are_found() -> None:
    known = [
        AbortedTransaction(1, 0, 5, 2),
        AbortedTransaction(2, 2, 9, 7),
        AbortedTransaction(3, 7, 12, 13),
        AbortedTransaction(4, 20, 22, 23),
    ]
    for start in range(25):
        for end in range(start, 25):
            touching = [one for one in known if one.first_offset < end and one.last_offset >= start]
            assert aborted_between(known, start, end) == touching, (start, end)


def test_offset_behind_is_computed_from_batch_headers() -> None:
    assert offset_behind(b"", 7) == 7
    assert offset_behind(batch(3, at=(10, 1)), 10) == 13
    assert offset_behind(batch(3, at=(10, 1)) + batch(2, at=(20, 1)), 10) == 22
