"""The producer state of a log: sequence numbers for idempotence, and open transactions.

The state of a producer id is its epoch, its last five batches, and the first offset of its open transaction. A client's
batch must continue the sequence of the producer's last one; a duplicate is answered with the offsets of the first
append. Batches from a leader or from disk are not checked: the leader has checked them before.

The rules (Kafka's `ProducerAppendInfo` and `ProducerStateEntry`; KIP-98, KIP-360):

    same epoch, first and last sequence among the last five   duplicate
    epoch below the known one                                 INVALID_PRODUCER_EPOCH
    epoch above it, first sequence not 0                      OUT_OF_ORDER_SEQUENCE_NUMBER
    same epoch, first sequence not the next one               OUT_OF_ORDER_SEQUENCE_NUMBER
    producer unknown                                          any first sequence
    not transactional while its transaction is open           INVALID_TXN_STATE
    first of a transaction, its coordinator did not confirm   INVALID_TXN_STATE
    newer epoch while a transaction of an older one is open   CONCURRENT_TRANSACTIONS
    version 2, producer unknown, first sequence not 0         OUT_OF_ORDER_SEQUENCE_NUMBER
    marker of version 2, epoch not above that of the records  INVALID_PRODUCER_EPOCH
    marker of an older coordinator                            TRANSACTION_COORDINATOR_FENCED

A transaction that is unknown to its coordinator would never end. The first batch of a transaction is therefore appended
only with the `Verification` that was created before the request to the coordinator. A marker that arrives meanwhile
removes it: the coordinator's answer was about a transaction that has ended (KIP-890).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from anabranch.broker.storage.aborted_transactions import AbortedTransaction, aborted_between, offset_behind
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import NO_PRODUCER_EPOCH, NO_TIMESTAMP, SEQUENCES, BatchHeader, Buffer
from anabranch.protocol.records.control import ControlRecord, ControlType

BATCHES_REMEMBERED: Final = 5
"""The largest number of batches that an idempotent producer may have in flight."""
NO_OFFSET: Final = -1


class BatchMetadata(NamedTuple):
    """The sequence numbers and offsets of a batch, by which a duplicate is recognised."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class Verification:
    """A pending verification of a producer's transaction by its coordinator (Kafka's `VerificationStateEntry`).

    `lowest_sequence` is the sequence of the first batch that waits; later batches must not be appended before it.
    """

    __slots__ = ("adds", "began_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, now_ms: int, adds: bool) -> None:
        self.adds = adds
        self.began_ms = now_ms
        self.epoch = epoch
        self.lowest_sequence = sequence


class ProducerEntry:
    """The state of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
        "transaction_start",
        "written_ms",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_REMEMBERED)
        self.transaction_start = NO_OFFSET
        self.last_timestamp_ms = NO_TIMESTAMP
        self.written_ms = NO_TIMESTAMP
        """When this process appended its last batch, or opened the log."""

    def __repr__(self) -> str:
        return f"<producer {self.producer_id} epoch {self.epoch} last sequence {self.last_sequence}>"

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record, -1 before the first."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerStates:
    """The states of all producers of one log."""

    __slots__ = ("_entries", "_open", "_unreplicated", "_verifications", "aborted", "now_ms")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}  # first offset of an open transaction -> producer id, in offset order
        self._unreplicated: dict[int, int] = {}  # first offset of an ended transaction -> offset of its marker
        self._verifications: dict[int, Verification] = {}
        self.aborted: list[AbortedTransaction] = []
        self.now_ms = NO_TIMESTAMP
        """The latest time that the log was told."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Iterable[ProducerEntry]:
        """Return all producers, in the order of their first batches."""
        return self._entries.values()

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Restore the states of a snapshot into an empty object."""
        for entry in entries:
            self._entries[entry.producer_id] = entry
        starts = ((one.transaction_start, one.producer_id) for one in self._entries.values())
        self._open = {start: producer_id for start, producer_id in sorted(starts) if start != NO_OFFSET}

    def begin(self, now_ms: int) -> None:
        """Count all producers as active now: the states were read from the log."""
        self.now_ms = now_ms
        for entry in self._entries.values():
            entry.written_ms = now_ms

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return the state of a producer, or None."""
        return self._entries.get(producer_id)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the same batch if it is among the producer's last five, or None."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch or header.base_sequence < 0:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Check whether the producer has an open transaction with this epoch."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_start != NO_OFFSET and entry.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds: bool = False
    ) -> Verification | None:
        """Return the verification with which to append a transactional batch after its coordinator has confirmed it.

        Return None if the transaction is open already, and so was confirmed before. `adds`: the transaction has version
        2, in which every epoch begins with sequence 0. Raises KafkaError if the batch has an old epoch.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {entry.epoch}, the batch {epoch}"
            )
        if self.has_open(producer_id, epoch):
            return None
        known = self._verifications.get(producer_id)
        if known is None:
            known = self._verifications[producer_id] = Verification(epoch, sequence, now_ms, adds)
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known

    def check(
        self,
        header: BatchHeader,
        *,
        from_client: bool,
        verification: Verification | None = None,
        verified_only: bool = False,
    ) -> None:
        """Raise KafkaError if a producer's batch may not be appended.

        `verified_only`: the first batch of a transaction needs a verification.
        """
        entry = self._entries.get(header.producer_id)
        current = None
        if header.is_transactional and (entry is None or entry.transaction_start == NO_OFFSET):
            current = self._verifications.get(header.producer_id)
            if verified_only and (current is None or current is not verification):
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} has no confirmed transaction here"
                )
        if entry is not None and header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch {header.producer_epoch}",
            )
        if from_client:
            _check_sequence(entry, current, header)
            _check_ended(entry, header)
        if entry is not None and entry.transaction_start != NO_OFFSET and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction, and sent a batch outside of it",
            )

    def check_marker(self, header: BatchHeader, control: ControlRecord, *, newer: bool = False) -> None:
        """Raise KafkaError if a coordinator's marker may not be appended.

        `newer`: the marker ends a transaction of version 2, and its epoch must be above that of the records.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        least = entry.epoch + (newer and entry.transaction_start != NO_OFFSET)
        if header.producer_epoch < least:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the marker {header.producer_epoch}",
            )
        if control.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {control.coordinator_epoch} after {entry.coordinator_epoch}",
            )

    def note(self, header: BatchHeader, first_offset: int, control: ControlRecord | None) -> None:
        """Update the state by an appended batch; `control` is the record of a control batch."""
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.append(header, first_offset)
        elif control is not None and control.ends_transaction:
            self.end_transaction(header, first_offset, control)

    def append(self, header: BatchHeader, first_offset: int) -> None:
        """Update the state by an appended batch of records; `end_transaction` takes markers."""
        entry = self._entry(header)
        last_offset = first_offset + header.last_offset_delta
        if header.base_sequence >= 0:
            entry.batches.append(
                BatchMetadata(
                    header.base_sequence, header.last_sequence, first_offset, last_offset, header.max_timestamp
                )
            )
        if header.is_transactional and entry.transaction_start == NO_OFFSET:
            entry.transaction_start = first_offset
            self._open[first_offset] = header.producer_id
            self._verifications.pop(header.producer_id, None)

    def end_transaction(self, header: BatchHeader, first_offset: int, control: ControlRecord) -> None:
        """Update the state by an appended transaction marker."""
        self._verifications.pop(header.producer_id, None)
        entry = self._entry(header)
        entry.coordinator_epoch = max(entry.coordinator_epoch, control.coordinator_epoch)
        start, entry.transaction_start = entry.transaction_start, NO_OFFSET
        if start == NO_OFFSET:
            return
        del self._open[start]
        self._unreplicated[start] = first_offset
        if control.type is ControlType.ABORT:
            stable = next(iter(self._open), first_offset + 1)
            self.aborted.append(AbortedTransaction(header.producer_id, start, first_offset, stable))

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that is open, or whose marker is not replicated yet."""
        first_open = next(iter(self._open), None)
        if not self._unreplicated:
            return first_open
        self.forget_replicated(high_watermark)
        first_unreplicated = min(self._unreplicated, default=None)
        if first_open is None or (first_unreplicated is not None and first_unreplicated < first_open):
            return first_unreplicated
        return first_open

    def forget_replicated(self, high_watermark: int) -> None:
        """Forget ended transactions whose markers are replicated: they bound no last stable offset any more."""
        if self._unreplicated:
            for start in [start for start, marker in self._unreplicated.items() if marker < high_watermark]:
                del self._unreplicated[start]

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap a range of offsets."""
        return aborted_between(self.aborted, start_offset, end_offset)

    def aborted_in(self, batches: Buffer, start_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap `batches`, which were read from `start_offset` on."""
        known = self.aborted
        if not known or known[-1].last_offset < start_offset or not len(batches):
            return []
        return aborted_between(known, start_offset, offset_behind(batches, start_offset))

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers without an open transaction that have not written for `expiration_ms`.

        Unlike in Kafka, a producer that writes old records is not idle: without its state, a retry is stored twice.
        """
        horizon_ms = now_ms - expiration_ms
        for entry in list(self._entries.values()):
            last_ms = max(entry.last_timestamp_ms, entry.written_ms)
            if entry.transaction_start == NO_OFFSET and last_ms <= horizon_ms:
                del self._entries[entry.producer_id]
        for producer_id in [
            one for one, verification in self._verifications.items() if verification.began_ms <= horizon_ms
        ]:
            del self._verifications[producer_id]

    def _entry(self, header: BatchHeader) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp_ms = max(entry.last_timestamp_ms, header.max_timestamp)
        entry.written_ms = self.now_ms
        return entry


def _check_ended(entry: ProducerEntry | None, header: BatchHeader) -> None:
    """Refuse a newer epoch while a transaction of an older one is open; the same marker would end both."""
    if entry is not None and entry.transaction_start != NO_OFFSET and entry.epoch < header.producer_epoch:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"the transaction of epoch {entry.epoch} of producer {header.producer_id} has not ended",
        )


def _check_sequence(entry: ProducerEntry | None, verification: Verification | None, header: BatchHeader) -> None:
    if verification is not None and header.base_sequence > verification.lowest_sequence:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {verification.lowest_sequence} before {header.base_sequence}",
        )
    if entry is None:
        if verification is not None and verification.adds and header.base_sequence > 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins with sequence {header.base_sequence} instead of 0",
            )
        return
    if entry.epoch == NO_PRODUCER_EPOCH:
        expected = header.base_sequence
    elif header.producer_epoch != entry.epoch:
        expected = 0
    else:
        expected = (entry.last_sequence + 1) % SEQUENCES  # 0 if a marker raised the epoch
    if header.base_sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} continues with sequence {header.base_sequence} instead of {expected}",
        )
