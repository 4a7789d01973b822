"""What compaction keeps of a batch: a pure function of the batch, the newest offset of each key, and the time.

    record with a newer one of its key in the map                goes
    record without a key                                         goes (a compacted topic takes none)
    tombstone that is the newest of its key                      stays until the batch's delete horizon
    batch of an aborted transaction                              goes
    marker of a transaction of which no batch is left            stays until its delete horizon
    last batch of a live producer                                stays, without its records if need be
    record behind the map's end                                  stays
    batch that cannot be read                                    stays as it is

The delete horizon is set by the first pass that finds a tombstone or such a marker: now plus `delete.retention.ms`.
Consumers that started before have that long to see it (KIP-534). Offsets, sequences, epochs and attributes of what
stays are never changed. Source: `Cleaner` of Kafka, which gives the whole log up where a batch cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from anabranch.broker.storage.aborted_transactions import CleanedTransactions
from anabranch.broker.storage.log_loader import control_of
from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import BatchHeader
from anabranch.protocol.records.batch_builder import with_records
from anabranch.protocol.records.record import Record, iter_records

_NO_BATCH: Final = -1
_TIMESTAMP_MAX: Final = 1 << 62
"""Beyond, what is between a timestamp and a delete horizon may not have room in a record."""
LastOfProducer = tuple[int, int]
"""(last offset of its last batch, or -1 if it only has a marker; epoch)."""


@dataclass(slots=True)
class OffsetMap:
    """The newest offset of each key in the dirty part of a log."""

    start: int
    end: int
    """Records from here on were not looked at."""
    keys_max: int = 1_000_000
    newest: dict[bytes, int] = field(default_factory=dict)
    unreadable: str = ""
    """The first batch that cannot be read, and why."""
    unreadable_count: int = 0

    def add(self, batch: bytes, header: BatchHeader, transactions: CleanedTransactions) -> bool:
        """Take in a batch; False if there was no room for all of its keys, and then the map ends before it."""
        try:
            if header.is_control:
                transactions.discards_marker(header, control_of(batch, header))
            elif not transactions.discards(header):
                if len(self.newest) + header.record_count > self.keys_max and self.newest:
                    return False
                for record in _records(batch, header):
                    if record.key is not None and record.offset >= self.start:
                        self.newest[record.key] = record.offset
        except DecodeError as reason:
            self.unreadable_count += 1
            self.unreadable = self.unreadable or f"at offset {header.base_offset}: {reason}"
        self.end = header.next_offset
        return True


@dataclass(slots=True)
class BatchFilter:
    """Decides on one batch after the other, in the order of the log."""

    newest: Mapping[bytes, int]
    end: int
    transactions: CleanedTransactions
    last_of_producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int

    def keep(self, batch: bytes, header: BatchHeader) -> bytes | None:
        """The batch as it is from now on: unchanged, with fewer records, or None."""
        try:
            if header.is_control:
                return self._keep_marker(batch, header)
            if self.transactions.discards(header):
                return self._emptied(batch, header)
            return self._keep_records(batch, header)
        except DecodeError:
            return batch

    def _keep_records(self, batch: bytes, header: BatchHeader) -> bytes | None:
        horizon_ms = header.delete_horizon_ms
        expired = horizon_ms is not None and horizon_ms <= self.now_ms
        records = _records(batch, header)
        kept = [record for record in records if self._keeps(record, expired)]
        if not kept:
            return self._emptied(batch, header)
        sets_horizon = horizon_ms is None and any(record.value is None for record in kept)
        if len(kept) == len(records) and not sets_horizon:
            return batch
        return with_records(batch, header, kept, self._horizon_ms if sets_horizon else None)

    def _keeps(self, record: Record, expired: bool) -> bool:
        if record.offset >= self.end:
            return True
        if record.key is None or record.offset < self.newest.get(record.key, -1):
            return False
        return record.value is not None or not expired

    def _keep_marker(self, batch: bytes, header: BatchHeader) -> bytes | None:
        needless = self.transactions.discards_marker(header, control_of(batch, header))
        horizon_ms = header.delete_horizon_ms
        if not needless or not header.record_count:
            return batch if header.record_count else self._emptied(batch, header)
        if horizon_ms is None:
            return with_records(batch, header, list(iter_records(batch)), self._horizon_ms)
        return self._emptied(batch, header) if horizon_ms <= self.now_ms else batch

    def _emptied(self, batch: bytes, header: BatchHeader) -> bytes | None:
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
        return self.now_ms + self.delete_retention_ms


def _records(batch: bytes, header: BatchHeader) -> list[Record]:
    """All records. Raises DecodeError also where they could be read, but not written again."""
    records = list(iter_records(batch))
    next_offset = header.base_offset
    for record in records:
        if not next_offset <= record.offset <= header.last_offset:
            raise DecodeError(f"offset {record.offset} is not in {next_offset}..{header.last_offset}", buffer=batch)
        if not -_TIMESTAMP_MAX <= record.timestamp_ms <= _TIMESTAMP_MAX:
            raise DecodeError(f"timestamp {record.timestamp_ms}", buffer=batch)
        next_offset = record.offset + 1
    return records


def last_of_producers(producers: ProducerStates) -> dict[int, LastOfProducer]:
    """What has to stay of each live producer, so that its sequence and epoch survive the loss of all snapshots."""
    return {
        entry.producer_id: (entry.batches[-1].last_offset if entry.batches else _NO_BATCH, entry.epoch)
        for entry in producers.entries
    }
