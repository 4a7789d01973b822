"""The records of a batch that compaction keeps, case by case."""

from __future__ import annotations

import time

import pytest

from anabranch.broker.storage.aborted_transactions import AbortedTransaction, CleanedTransactions
from anabranch.broker.storage.compaction import BatchFilter, OffsetMap
from anabranch.protocol.records.batch import BatchHeader, check_crc, read_header
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.records.record import iter_records
from tests.protocol.stored_batch import stored_at

NOW_MS = 1_000_000
HORIZON_MS = 500
NOBODY: dict[int, tuple[int, int]] = {}


def a_batch(
    records: list[tuple[bytes | None, bytes | None]],
    *,
    at: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: str = "none",
    transactional: bool = False,
) -> bytes:
    builder = BatchBuilder(compression, limit_bytes=1 << 20)
    for number, (key, value) in enumerate(records):
        builder.append(key, value, (("header", b"%d" % number),), 100 + number)
    return stored_at(builder.build(*producer, transactional=transactional), at, 4)


def a_marker(commit: bool, *, at: int) -> bytes:
    marker = build_end_transaction(
        commit=commit, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=200
    )
    return stored_at(marker, at, 4)


def a_filter(
    newest: dict[bytes, int],
    *,
    end: int = 1000,
    now_ms: int = NOW_MS,
    aborted: list[AbortedTransaction] | None = None,
    last_of_producers: dict[int, tuple[int, int]] = NOBODY,
) -> BatchFilter:
    return BatchFilter(newest, end, CleanedTransactions(aborted or []), last_of_producers, now_ms, HORIZON_MS)


def kept(keeper: BatchFilter, batch: bytes) -> tuple[bytes, BatchHeader]:
    left = keeper.keep(batch, read_header(batch))
    assert left is not None
    header = read_header(left)
    assert check_crc(left, 0, header)
    assert header.size_bytes == len(left)
    return left, header


@pytest.mark.parametrize("tombstone", [False, True])
def test_record_of_many_headers_is_kept_without_reading_them(tombstone: bool) -> None:
    """The record after it is removed, so the batch is rewritten."""
    builder = BatchBuilder(limit_bytes=1 << 30)
    headers = (("", None),) * 400_000
    builder.append(b"a", None if tombstone else b"v", headers, 100)
    builder.append(b"b", b"gone", (), 101)
    batch = builder.build()
    started_s = time.thread_time()
    before = list(iter_records(batch))
    read_s, started_s = time.thread_time() - started_s, time.thread_time()
    transactions = CleanedTransactions([])
    assert OffsetMap(0, 0).add(batch, read_header(batch), transactions)
    left, header = kept(a_filter({b"a": 0, b"b": 9}), batch)
    assert time.thread_time() - started_s < read_s / 3
    assert list(iter_records(left)) == before[:1]
    assert header.max_timestamp == 100


def test_long_batch_is_filtered_in_steps() -> None:
    batch = a_batch([(b"%d" % (number % 3000), b"v") for number in range(10_000)], compression="gzip")
    header = read_header(batch)
    offsets = OffsetMap(0, 0)
    assert len(list(offsets.iter_add(batch, header, CleanedTransactions([])))) >= 10_000 // 500
    assert len(offsets.newest) == 3000
    assert len(list(a_filter(offsets.newest, end=10_000).iter_keep(batch, header))) >= 2 * 10_000 // 500, (
        "to decide, and to copy"
    )
    left, header = kept(a_filter(offsets.newest, end=10_000), batch)
    assert header.record_count == 3000
    assert [one.offset for one in iter_records(left)] == list(range(7000, 10_000))


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
def test_latest_record_of_each_key_is_unchanged(compression: str) -> None:
    batch = a_batch(
        [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")], at=50, producer=(7, 1, 10), compression=compression
    )
    before = list(iter_records(batch))
    left, header = kept(a_filter({b"a": 52, b"b": 90, b"c": 53}), batch)
    assert list(iter_records(left)) == [before[2], before[3]]
    old = read_header(batch)
    same = ("base_offset", "last_offset_delta", "partition_leader_epoch", "attributes", "base_timestamp")
    for name in (*same, "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(header, name) == getattr(old, name), name
    assert (header.record_count, header.max_timestamp, header.last_sequence) == (2, 103, old.last_sequence)


def test_batch_that_keeps_every_record_is_not_rewritten() -> None:
    batch = a_batch([(b"a", b"1"), (b"b", b"2")])
    assert a_filter({b"a": 0, b"b": 1}).keep(batch, read_header(batch)) is batch


def test_batch_without_remaining_records_is_removed() -> None:
    batch = a_batch([(b"a", b"1"), (None, b"2")])
    assert a_filter({b"a": 9}).keep(batch, read_header(batch)) is None


def test_records_beyond_the_offset_map_are_kept() -> None:
    batch = a_batch([(b"a", b"1"), (b"a", b"2")], at=10)
    left, _ = kept(a_filter({b"a": 10}, end=11), batch)
    assert [record.offset for record in iter_records(left)] == [10, 11]
    assert a_filter({b"a": 10}, end=12).keep(batch, read_header(batch)) is batch, "older keys are not in the map"
    loose = a_batch([(None, b"1"), (None, b"2")], at=10)
    left, _ = kept(a_filter({}, end=11), loose)
    assert [record.offset for record in iter_records(left)] == [11]


def test_tombstone_is_kept_until_its_delete_horizon() -> None:
    batch = a_batch([(b"a", None), (b"b", b"2"), (b"c", None)])
    newest = {b"a": 0, b"b": 1, b"c": 77}
    first, header = kept(a_filter(newest), batch)
    assert header.delete_horizon_ms == NOW_MS + HORIZON_MS
    assert [(one.key, one.value, one.timestamp_ms) for one in iter_records(first)] == [
        (b"a", None, 100),
        (b"b", b"2", 101),
    ]
    again = a_filter(newest, now_ms=NOW_MS + HORIZON_MS - 1)
    assert again.keep(first, header) is first, "the horizon is set once"
    last, header = kept(a_filter(newest, now_ms=NOW_MS + HORIZON_MS), first)
    assert [(one.key, one.timestamp_ms) for one in iter_records(last)] == [(b"b", 101)]
    assert header.delete_horizon_ms == NOW_MS + HORIZON_MS


def test_last_batch_of_an_active_producer_is_kept_empty() -> None:
    batch = a_batch([(b"a", b"1"), (b"b", b"2")], at=20, producer=(7, 3, 5), compression="gzip")
    left, header = kept(a_filter({b"a": 90, b"b": 91}, last_of_producers={7: (21, 3)}), batch)
    assert (header.record_count, len(left), header.last_sequence, header.codec) == (0, 61, 6, 0)
    assert (header.base_offset, header.last_offset, header.max_timestamp) == (20, 21, 101)
    assert list(iter_records(left)) == []
    again = a_filter({}, last_of_producers={7: (21, 3)})
    assert again.keep(left, header) is left
    assert a_filter({}, last_of_producers={7: (30, 3)}).keep(left, header) is None


def test_aborted_records_are_removed_before_their_marker() -> None:
    data = a_batch([(b"a", b"1")], at=10, producer=(7, 0, 0), transactional=True)
    other = a_batch([(b"b", b"2")], at=11)
    marker = a_marker(False, at=12)
    aborted = [AbortedTransaction(7, 10, 12, 13)]
    first = a_filter({b"a": 10, b"b": 11}, aborted=aborted)
    assert first.keep(data, read_header(data)) is None
    assert first.keep(other, read_header(other)) is other
    assert first.keep(marker, read_header(marker)) is marker
    assert first.transactions.retained == aborted
    second = a_filter({b"b": 11}, aborted=aborted)
    dated, header = kept(second, marker)
    assert header.delete_horizon_ms == NOW_MS + HORIZON_MS
    assert header.is_control
    assert second.transactions.retained == []
    assert a_filter({}, now_ms=NOW_MS + HORIZON_MS - 1).keep(dated, header) is dated
    assert a_filter({}, now_ms=NOW_MS + HORIZON_MS).keep(dated, header) is None
    fenced = a_filter({}, now_ms=NOW_MS + HORIZON_MS, last_of_producers={7: (-1, 0)})
    emptied, header = kept(fenced, dated)
    assert (header.record_count, header.is_control, header.producer_epoch) == (0, True, 0)
    assert a_filter({}).keep(emptied, header) is None


def test_commit_marker_is_kept_with_records_of_its_transaction() -> None:
    data = a_batch([(b"a", b"1")], at=10, producer=(7, 0, 0), transactional=True)
    marker = a_marker(True, at=11)
    keeper = a_filter({b"a": 10})
    assert keeper.keep(data, read_header(data)) is data
    assert keeper.keep(marker, read_header(marker)) is marker
    _, header = kept(a_filter({b"a": 10}), marker)
    assert header.delete_horizon_ms is not None


def test_offset_map_accepts_committed_keys_until_it_is_full() -> None:
    offsets = OffsetMap(11, 11, keys_max=3)
    transactions = CleanedTransactions([AbortedTransaction(7, 13, 14)])
    for batch in (
        a_batch([(b"old", b""), (b"a", b"")], at=10),
        a_batch([(b"a", b"")], at=12),
        a_batch([(b"aborted", b"")], at=13, producer=(7, 0, 0), transactional=True),
        a_marker(False, at=14),
    ):
        assert offsets.add(batch, read_header(batch), transactions)
    assert (offsets.newest, offsets.end) == ({b"a": 12}, 15)
    too_much = a_batch([(b"x", b""), (b"y", b""), (b"z", b"")], at=15)
    assert not offsets.add(too_much, read_header(too_much), transactions)
    assert offsets.end == 15
