"""What a log remembers of its producers: sequences against loss and repetition, and transactions that are open.

Per producer id: its epoch, its last five batches, and where its open transaction began. A batch from a client must go
on where the producer's last one ended; the same batch again is answered with the offsets it got the first time. What
comes from a leader or from disk is taken as it is: the leader has checked it before.

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

A transaction that its coordinator knows nothing of would never end. So the first batch of one is appended only with the
`Verification` that was begun before the coordinator was asked, and only while that still stands: a marker that comes
meanwhile takes it away, because the coordinator's word was about a transaction that is over (KIP-890).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from anabranch.broker.storage.aborted_transactions import AbortedTransaction
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import NO_PRODUCER_EPOCH, NO_TIMESTAMP, SEQUENCES, BatchHeader
from anabranch.protocol.records.control import ControlRecord, ControlType

BATCHES_REMEMBERED: Final = 5
"""As many as a producer may have in flight."""
NO_OFFSET: Final = -1


class BatchMetadata(NamedTuple):
    """One batch of a producer, as needed to recognise it when it comes again."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class Verification:
    """A producer's transaction is about to begin here, and its coordinator is being asked whether that is so.

    `lowest_sequence` is the first batch that wants in: a later one that is confirmed sooner has to wait for it.
    """

    __slots__ = ("adds", "began_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, now_ms: int, adds: bool) -> None:
        self.adds = adds
        self.began_ms = now_ms
        self.epoch = epoch
        self.lowest_sequence = sequence


class ProducerEntry:
    """One producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "producer_id", "transaction_start")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_REMEMBERED)
        self.transaction_start = NO_OFFSET
        self.last_timestamp_ms = NO_TIMESTAMP

    def __repr__(self) -> str:
        return f"<producer {self.producer_id} epoch {self.epoch} last sequence {self.last_sequence}>"

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 before the first."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerStates:
    """All producers of one log."""

    __slots__ = ("_entries", "_open", "_unreplicated", "_verifications", "aborted")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}  # first offset of an open transaction -> producer id, in offset order
        self._unreplicated: dict[int, int] = {}  # first offset of an ended transaction -> offset of its marker
        self._verifications: dict[int, Verification] = {}
        self.aborted: list[AbortedTransaction] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Iterable[ProducerEntry]:
        """All producers, in the order in which they came."""
        return self._entries.values()

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Go on from a snapshot; nothing is known yet."""
        for entry in entries:
            self._entries[entry.producer_id] = entry
        starts = ((one.transaction_start, one.producer_id) for one in self._entries.values())
        self._open = {start: producer_id for start, producer_id in sorted(starts) if start != NO_OFFSET}

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer."""
        return self._entries.get(producer_id)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The same batch, if it is among the producer's last five."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch or header.base_sequence < 0:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of the producer is open here, and has this epoch."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_start != NO_OFFSET and entry.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds: bool = False
    ) -> Verification | None:
        """A transactional batch wants in: what to append it with once its coordinator agrees.

        None while the producer's transaction is open here: the coordinator has agreed before. `adds`: it is of version
        2, where every epoch begins with sequence 0. Raises KafkaError if a later epoch has been here.
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
        """Whether a producer's batch may be appended; `verified_only`: the first of a transaction has to be verified.

        Raises KafkaError.
        """
        entry = self._entries.get(header.producer_id)
        begun = None
        if header.is_transactional and (entry is None or entry.transaction_start == NO_OFFSET):
            begun = self._verifications.get(header.producer_id)
            if verified_only and (begun is None or begun is not verification):
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} has no confirmed transaction here"
                )
        if entry is not None and header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch {header.producer_epoch}",
            )
        if from_client:
            _check_sequence(entry, begun, header)
            _check_ended(entry, header)
        if entry is not None and entry.transaction_start != NO_OFFSET and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction and sends outside of it",
            )

    def check_marker(self, header: BatchHeader, control: ControlRecord, *, newer: bool = False) -> None:
        """Whether a coordinator's marker may be appended. Raises KafkaError.

        `newer`: it ends a transaction of version 2, whose records have an older epoch than it.
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
        """Remember any batch that is in the log now; `control` is what a control batch says."""
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.append(header, first_offset)
        elif control is not None and control.ends_transaction:
            self.end_transaction(header, first_offset, control)

    def append(self, header: BatchHeader, first_offset: int) -> None:
        """Remember a producer's batch that is in the log now. Markers go to `end_transaction`."""
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
        """Remember a marker that is in the log now."""
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
        """Where the oldest transaction began that is open, or whose end is not replicated yet."""
        first_open = next(iter(self._open), None)
        if not self._unreplicated:
            return first_open
        for start in [start for start, marker in self._unreplicated.items() if marker < high_watermark]:
            del self._unreplicated[start]
        first_unreplicated = min(self._unreplicated, default=None)
        if first_open is None or (first_unreplicated is not None and first_unreplicated < first_open):
            return first_unreplicated
        return first_open

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for long and have no open transaction."""
        horizon_ms = now_ms - expiration_ms
        for entry in list(self._entries.values()):
            if entry.transaction_start == NO_OFFSET and entry.last_timestamp_ms <= horizon_ms:
                del self._entries[entry.producer_id]
        for producer_id in [one for one, begun in self._verifications.items() if begun.began_ms <= horizon_ms]:
            del self._verifications[producer_id]

    def _entry(self, header: BatchHeader) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp_ms = max(entry.last_timestamp_ms, header.max_timestamp)
        return entry


def _check_ended(entry: ProducerEntry | None, header: BatchHeader) -> None:
    """A transaction of an older epoch has to end before anything of a newer one comes: else it would end with it."""
    if entry is not None and entry.transaction_start != NO_OFFSET and entry.epoch < header.producer_epoch:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"the transaction of epoch {entry.epoch} of producer {header.producer_id} has not ended here",
        )


def _check_sequence(entry: ProducerEntry | None, begun: Verification | None, header: BatchHeader) -> None:
    if begun is not None and header.base_sequence > begun.lowest_sequence:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {begun.lowest_sequence} before {header.base_sequence}",
        )
    if entry is None:
        if begun is not None and begun.adds and header.base_sequence > 0:
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
        expected = (entry.last_sequence + 1) % SEQUENCES  # 0 where a marker has brought the epoch
    if header.base_sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} continues with sequence {header.base_sequence} instead of {expected}",
        )
