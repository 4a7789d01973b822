"""One transactional id: its producer, its transaction, and its transitions.

A transition has two halves. `prepare_*` returns the `Transition`, which the journal writes, and makes its state
*pending*. `complete` applies it once its record is replicated; `abandon_transition` drops it if that failed. Only one
transition is pending at a time, so the journal and memory have the same order.

    Empty              a producer, no transaction
    Ongoing            partitions are in the transaction
    PrepareCommit      decided; markers are on their way to the partitions; PrepareAbort likewise
    CompleteCommit     every partition has its marker; CompleteAbort likewise
    Dead               expired, about to be deleted
    PrepareEpochFence  only ever pending: the old producer's epoch is fenced, and the abort follows at once

Epochs run from 0 to 32766: 32767 only fences the producer that has 32766.

The end of a version 2 transaction takes a new epoch: the next one, or 0 with a new producer id. So late batches of the
transaction are rejected, and the producer can start the next one without a request (KIP-890). The version of a
transaction comes from the requests that add to it and end it.

Source: kafka.coordinator.transaction.TransactionMetadata; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import slotted, value

TopicPartition = tuple[str, int]

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
PRODUCER_EPOCH_MAX: Final = 32767
NO_TIMESTAMP: Final = -1
VERSION_WITH_EPOCH_BUMP: Final = 2
"""The transaction version from which each end takes the next epoch."""


class TransactionState(enum.IntEnum):
    """The state of a transactional id; the numbers are those of the journal."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name for administrators, such as "PrepareCommit"."""
        return self.name.title().replace("_", "")


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
DEAD: Final = TransactionState.DEAD
PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

LEGAL: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    #  from              to
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    DEAD: frozenset(),
    PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
}
AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""No transaction is open: a new one may start, the producer may be replaced, the id may expire."""
PREPARED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})


@value(kw_only=True)
class Transition:
    """The state of a transactional id after a transition."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    """Journaled from version 2 on; before, a repeated InitProducerId is not recognised after a failover."""
    last_producer_epoch: int
    """Not in the journal."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer's next id, if the epochs of the current one are exhausted."""
    client_version: int = 0
    """The producer's transaction version."""
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    last_update_ms: int


@slotted(eq=False, kw_only=True)
class Transaction:
    """One transactional id. `partitions` shrinks as markers are acknowledged."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    """NO_PRODUCER_EPOCH until the first InitProducerId is in the journal."""
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int
    pending: TransactionState | None = None
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    fence_failed: bool = False
    """The epoch raised by a fence could not be written; it is reused, since no producer has it."""

    def __str__(self) -> str:
        """Format the id for logs, on one line, equal in every process."""
        places = ", ".join(f"{topic}-{index}" for topic, index in sorted(self.partitions))
        producer = f"producer {self.producer_id} epoch {self.producer_epoch}"
        return f"{self.transactional_id} {self.state.name} {producer} partitions [{places}]"

    @property
    def epoch_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a producer."""
        return is_epoch_exhausted(self.producer_epoch)

    # --- prepare -------------------------------------------------------------------------------------------------

    def prepare_fence(self) -> Transition:
        """Fence the producer with the next epoch, which no producer gets."""
        epoch = self.producer_epoch if self.fence_failed else self.producer_epoch + 1
        assert epoch <= PRODUCER_EPOCH_MAX, f"{self} has no epoch left for fencing"
        return self._prepare(PREPARE_EPOCH_FENCE, epoch=epoch, last_epoch=NO_PRODUCER_EPOCH)

    def adopt_fence(self, epoch: int | None) -> None:
        """Continue a fence with an abort: the old producer is fenced from now on, whatever the journal has.

        Without an epoch the abort is of version 2, and takes the next epoch itself.
        """
        assert self.pending is PREPARE_EPOCH_FENCE, f"{self} is not being fenced"
        self.pending = None
        if epoch is None:
            return
        self.producer_epoch = epoch
        self.last_producer_epoch = NO_PRODUCER_EPOCH

    def prepare_next_epoch(self, *, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transition:
        """Take the next epoch of the same producer id, or keep the current one for a repeated request.

        Raises PRODUCER_FENCED if the producer's epoch is neither the current nor the last one.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch and self.producer_epoch < PRODUCER_EPOCH_MAX:
                # Its response was lost. No other producer came between: that would have cleared the last epoch.
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise KafkaError(ErrorCode.PRODUCER_FENCED, f"epoch {expected_epoch} is not {self.producer_epoch}")
        assert epoch < PRODUCER_EPOCH_MAX, f"{self} has no epoch left"
        return self._prepare(
            EMPTY,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            now_ms=now_ms,
        )

    def prepare_new_producer(
        self, producer_id: int, *, timeout_ms: int, remember_epoch: bool, now_ms: int
    ) -> Transition:
        """Take a new producer id, because the epochs of the current one are exhausted."""
        return self._prepare(
            EMPTY,
            producer_id=producer_id,
            epoch=0,
            last_epoch=self.producer_epoch if remember_epoch else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            now_ms=now_ms,
        )

    def prepare_add(self, partitions: Iterable[TopicPartition], *, client_version: int = 0, now_ms: int) -> Transition:
        """Add partitions; the first ones start the transaction."""
        return self._prepare(
            ONGOING,
            partitions=self.partitions | frozenset(partitions),
            client_version=client_version,
            start_ms=now_ms if self.state in AT_REST else self.start_ms,
            now_ms=now_ms,
        )

    def prepare_end(
        self, *, commit: bool, client_version: int = 0, next_producer_id: int = NO_PRODUCER_ID, now_ms: int
    ) -> Transition:
        """Decide the transaction. From version 2 on it takes the next epoch, which the markers carry."""
        bumps = client_version >= VERSION_WITH_EPOCH_BUMP
        return self._prepare(
            PREPARE_COMMIT if commit else PREPARE_ABORT,
            epoch=self.producer_epoch + 1 if bumps else None,
            last_epoch=self.producer_epoch if bumps else None,
            next_producer_id=next_producer_id,
            client_version=client_version,
            start_ms=now_ms if self.state in AT_REST else None,
            now_ms=now_ms,
        )

    def prepare_complete(self, *, now_ms: int) -> Transition:
        """Return the transition to write when every partition has its marker."""
        self.fence_failed = False  # the abort that followed a fence is in the journal
        after = COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT
        another = self.next_producer_id != NO_PRODUCER_ID
        return self._prepare(
            after,
            producer_id=self.next_producer_id if another else None,
            epoch=0 if another else None,
            partitions=frozenset(),
            now_ms=now_ms,
        )

    def prepare_dead(self) -> Transition:
        """Delete an expired id."""
        return self._prepare(DEAD, partitions=frozenset())

    def _prepare(
        self,
        state: TransactionState,
        *,
        producer_id: int | None = None,
        epoch: int | None = None,
        last_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        next_producer_id: int = NO_PRODUCER_ID,
        client_version: int | None = None,
        start_ms: int | None = None,
        now_ms: int | None = None,
    ) -> Transition:
        assert self.pending is None, f"{self} is in transition to {self.pending!r} and cannot go to {state!r}"
        assert state in LEGAL[self.state], f"{self}: {self.state.title} -> {state.title} is not a transition"
        self.pending = state
        return Transition(
            state=state,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.producer_epoch if epoch is None else epoch,
            last_producer_id=self.producer_id,
            last_producer_epoch=self.last_producer_epoch if last_epoch is None else last_epoch,
            next_producer_id=next_producer_id,
            client_version=self.client_version if client_version is None else client_version,
            timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            partitions=frozenset(self.partitions if partitions is None else partitions),
            start_ms=self.start_ms if start_ms is None else start_ms,
            last_update_ms=self.last_update_ms if now_ms is None else now_ms,
        )

    # --- complete or abandon -------------------------------------------------------------------------------------

    def complete(self, transition: Transition, *, clears_start: bool = False) -> None:
        """Apply the transition, whose record is replicated.

        `clears_start`: a new producer clears the start time of a transaction. Otherwise the last start time stays
        visible to administrators.
        """
        to = transition.state
        assert self.pending is to, f"{self} was to become {self.pending!r}, not {to!r}"
        now, then = (self.producer_id, self.producer_epoch), (transition.producer_id, transition.producer_epoch)
        same_producer = now == then
        match to:
            case TransactionState.EMPTY:
                self.producer_id, self.producer_epoch = transition.producer_id, transition.producer_epoch
                self.last_producer_id = transition.last_producer_id
                self.last_producer_epoch = transition.last_producer_epoch
                self.timeout_ms = transition.timeout_ms
                if clears_start:
                    self.start_ms = transition.start_ms
            case TransactionState.ONGOING:
                assert same_producer and self.partitions <= transition.partitions, f"{self} cannot become {transition}"
                self.start_ms = transition.start_ms
                self.partitions = set(transition.partitions)
            case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
                bumped = transition.client_version >= VERSION_WITH_EPOCH_BUMP
                assert then == (self.producer_id, self.producer_epoch + bumped), f"{self} cannot become {transition}"
                assert self.partitions == transition.partitions, f"{self} cannot become {transition}"
                self.producer_epoch, self.start_ms = transition.producer_epoch, transition.start_ms
                self.last_producer_epoch = transition.last_producer_epoch
                self.next_producer_id = transition.next_producer_id
            case TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT:
                renewed = then == (self.next_producer_id, 0)
                assert (same_producer or renewed) and not self.partitions, f"{self} cannot become {transition}"
                self.last_producer_id = transition.last_producer_id
                self.last_producer_epoch = transition.last_producer_epoch
                self.producer_id, self.producer_epoch = then
                self.next_producer_id = NO_PRODUCER_ID
            case TransactionState.DEAD | TransactionState.PREPARE_EPOCH_FENCE:
                raise AssertionError(f"{self} cannot become {to.title}: this state is never journaled")
        self.last_update_ms = transition.last_update_ms
        self.client_version = transition.client_version
        self.pending = None
        self.state = to

    def abandon_transition(self, transition: Transition) -> None:
        """Drop the pending transition, which the journal rejected."""
        assert self.pending is transition.state, (
            f"{self} is in transition to {self.pending!r}, not {transition.state!r}"
        )
        self.pending = None

    def remove_partition(self, partition: TopicPartition) -> None:
        """Remove a partition that has its marker, or needs none."""
        assert self.state in PREPARED, f"{self} has no decision, so {partition} cannot have its marker"
        self.partitions.discard(partition)


def is_epoch_exhausted(epoch: int) -> bool:
    """Return whether a producer id with this epoch has none left for a producer."""
    return epoch >= PRODUCER_EPOCH_MAX - 1
