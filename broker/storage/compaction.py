"""The rules of compaction: which records of a batch stay, by the newest offset of each key and the time. Pure.

    record with a newer one of its key in the map                removed
    record without a key                                         removed (a compacted topic accepts none)
    tombstone that is the newest of its key                      stays until the batch's delete horizon
    batch of an aborted transaction                              removed
    marker of a transaction without remaining batches            stays until its delete horizon
    last batch of a live producer                                stays, if necessary without its records
    record at or after the map's end                             stays
    unreadable batch                                             stays unchanged

The first pass that finds a tombstone or such a marker sets its delete horizon: now plus `delete.retention.ms`.
Consumers that started before have that time to read it (KIP-534). Offsets, sequences, epochs and attributes never
change. Source: Kafka's `Cleaner`, which stops cleaning a log with an unreadable batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import field
from typing import Final, TypeVar

from anabranch.broker.storage.aborted_transactions import CleanedTransactions
from anabranch.broker.storage.log_loader import control_of
from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import NO_TIMESTAMP, BatchHeader
from anabranch.protocol.records.batch_builder import shift_timestamp, with_content, with_records
from anabranch.protocol.records.record import AT_ONCE, Columns, RecordReader, iter_records
from anabranch.protocol.values import slotted
from anabranch.protocol.varint import decode_varint

Outcome = TypeVar("Outcome")

_NO_BATCH: Final = -1
_TIMESTAMP_MAX: Final = 1 << 62
"""Beyond this, the difference between a timestamp and a delete horizon may overflow a record's field."""
LastOfProducer = tuple[int, int]
"""(last offset of its last batch, or -1 if it only has a marker; epoch)."""


@slotted
class OffsetMap:
    """The newest offset of each key in the dirty part of a log."""

    start: int
    end: int
    """Records from this offset on are not in the map."""
    keys_max: int = 1_000_000
    newest: dict[bytes, int] = field(default_factory=dict)
    unreadable: str = ""
    """Offset and error of the first unreadable batch."""
    unreadable_count: int = 0

    def add(self, batch: bytes, header: BatchHeader, transactions: CleanedTransactions) -> bool:
        """Add the keys of a batch; return False if they exceed `keys_max`, and then the map ends before the batch."""
        return in_one_step(self.iter_add(batch, header, transactions))

    def iter_add(
        self, batch: bytes, header: BatchHeader, transactions: CleanedTransactions
    ) -> Generator[None, None, bool]:
        """Add the keys of a batch in steps; see `add`."""
        try:
            if header.is_control:
                transactions.discards_marker(header, control_of(batch, header))
            elif not transactions.discards(header):
                if len(self.newest) + header.record_count > self.keys_max and self.newest:
                    return False
                found: dict[bytes, int] = {}
                for columns in _iter_columns(RecordReader(batch, headers_max=0), header):
                    for key, offset in zip(columns.keys, columns.offsets, strict=True):
                        if key is not None and offset >= self.start:
                            found[key] = offset
                    yield
                self.newest.update(found)
        except DecodeError as reason:
            self.unreadable_count += 1
            self.unreadable = self.unreadable or f"at offset {header.base_offset}: {reason}"
        self.end = header.next_offset
        return True


@slotted
class BatchFilter:
    """Filters the batches of a log, in order."""

    newest: Mapping[bytes, int]
    end: int
    transactions: CleanedTransactions
    last_of_producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int

    def keep(self, batch: bytes, header: BatchHeader) -> bytes | None:
        """Return the batch unchanged, the batch with fewer records, or None to remove it."""
        return in_one_step(self.iter_keep(batch, header))

    def iter_keep(self, batch: bytes, header: BatchHeader) -> Generator[None, None, bytes | None]:
        """Filter a batch in steps; see `keep`."""
        try:
            if header.is_control:
                return self._keep_marker(batch, header)
            if self.transactions.discards(header):
                return self._empty_batch(batch, header)
            return (yield from self._keep_records(batch, header))
        except DecodeError:
            return batch

    def _keep_records(self, batch: bytes, header: BatchHeader) -> Generator[None, None, bytes | None]:
        horizon_ms = header.delete_horizon_ms
        expired = horizon_ms is not None and horizon_ms <= self.now_ms
        reader = RecordReader(batch, headers_max=0)
        keeps = bytearray()
        """One byte per record: 1 if the record stays."""
        latest_ms, has_tombstone = NO_TIMESTAMP, False
        for columns in _iter_columns(reader, header):
            rows = zip(columns.offsets, columns.timestamps_ms, columns.keys, columns.values, strict=True)
            for offset, timestamp_ms, key, value in rows:
                stays = self._keeps(offset, key, value, expired)
                keeps.append(stays)
                if stays:
                    latest_ms = max(latest_ms, timestamp_ms)
                    has_tombstone = has_tombstone or value is None
            yield
        count = keeps.count(1)
        if not count:
            return self._empty_batch(batch, header)
        sets_horizon = horizon_ms is None and has_tombstone
        if count == len(keeps) and not sets_horizon:
            return batch
        shift_ms = header.base_timestamp - self._horizon_ms if sets_horizon else 0
        content = yield from _iter_kept(reader.content, keeps, shift_ms)
        return with_content(header, content, count, latest_ms, self._horizon_ms if sets_horizon else None)

    def _keeps(self, offset: int, key: bytes | None, value: bytes | None, expired: bool) -> bool:
        if offset >= self.end:
            return True
        if key is None or offset < self.newest.get(key, -1):
            return False
        return value is not None or not expired

    def _keep_marker(self, batch: bytes, header: BatchHeader) -> bytes | None:
        needless = self.transactions.discards_marker(header, control_of(batch, header))
        horizon_ms = header.delete_horizon_ms
        if not needless or not header.record_count:
            return batch if header.record_count else self._empty_batch(batch, header)
        if horizon_ms is None:
            return with_records(batch, header, list(iter_records(batch)), self._horizon_ms)
        return self._empty_batch(batch, header) if horizon_ms <= self.now_ms else batch

    def _empty_batch(self, batch: bytes, header: BatchHeader) -> bytes | None:
        last = self.last_of_producers.get(header.producer_id)
        if last is None:
            return None
        offset, epoch = last
        stays = header.last_offset == offset if offset >= 0 else header.is_control and header.producer_epoch == epoch
        if not stays:
            return None
        return with_records(batch, header, (), None) if header.record_count else batch

    @property
    def _horizon_ms(self) -> int:
        return min(self.now_ms + self.delete_retention_ms, _TIMESTAMP_MAX)


def in_one_step(steps: Generator[None, None, Outcome]) -> Outcome:
    """The outcome of something that could be done in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


def _iter_columns(reader: RecordReader, header: BatchHeader) -> Iterator[Columns]:
    """Yield all records, a few hundred at a time.

    Raises DecodeError during iteration, also for records that can be read but not rewritten.
    """
    next_offset = header.base_offset
    while reader.left:
        columns = reader.read(AT_ONCE)
        for offset, timestamp_ms in zip(columns.offsets, columns.timestamps_ms, strict=True):
            if not next_offset <= offset <= header.last_offset:
                raise DecodeError(f"offset {offset} is not in {next_offset}..{header.last_offset}")
            if not -_TIMESTAMP_MAX <= timestamp_ms <= _TIMESTAMP_MAX:
                raise DecodeError(f"timestamp {timestamp_ms}")
            next_offset = offset + 1
        yield columns


def _iter_kept(content: bytes, keeps: bytearray, shift_ms: int) -> Generator[None, None, bytearray]:
    """Return the bytes of the remaining records; only their timestamp deltas change."""
    kept, position = bytearray(), 0
    for index, stays in enumerate(keeps):
        size, start = decode_varint(content, position)
        if stays:
            record = content[position : start + size]
            kept += shift_timestamp(record, shift_ms) if shift_ms else record
        position = start + size
        if index % AT_ONCE == AT_ONCE - 1:
            yield
    return kept


def last_of_producers(producers: ProducerStates) -> dict[int, LastOfProducer]:
    """Return the last batch of each live producer; it stays, so that a scan without snapshots restores the state."""
    return {
        entry.producer_id: (entry.batches[-1].last_offset if entry.batches else _NO_BATCH, entry.epoch)
        for entry in producers.entries
    }
