"""The rules of producers' requests: the transition that a request makes, or its error.

Pure rules over one `Transaction`. Each raises the KafkaError to respond with, returns the transition to write, or
returns None for success without a write. The caller has already found the id.

Source: kafka.coordinator.transaction.TransactionCoordinator of Kafka 3.9, and of 4.1 and 4.2 for version 2 of
transactions (KIP-890), which the request version selects: EndTxn v5, and partitions that brokers add. One response
differs: when the epochs are exhausted, a producer with a wrong epoch gets PRODUCER_FENCED, and a repeated request its
previous response, where Kafka fails with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from anabranch.broker.coordinators.transactions.transactional_id import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    PRODUCER_EPOCH_MAX,
    VERSION_WITH_EPOCH_BUMP,
    TopicPartition,
    Transaction,
    Transition,
    is_epoch_exhausted,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


class Producer(NamedTuple):
    """The producer id and epoch in a request."""

    id: int
    epoch: int


def wants_new_producer_id(transaction: Transaction, expected: Producer | None) -> bool:
    """Return whether InitProducerId returns a new producer id, because the epochs are exhausted."""
    at_end = transaction.epoch_exhausted and (expected is None or expected.epoch == transaction.producer_epoch)
    return at_end and transaction.pending is None and transaction.state in AT_REST


def init_producer_id(
    transaction: Transaction, expected: Producer | None, *, timeout_ms: int, new_producer_id: int | None, now_ms: int
) -> Transition:
    """Return the next epoch for a producer that starts (`expected` None) or recovers (KIP-360).

    A transition to PrepareEpochFence means: abort first; the producer retries. `new_producer_id` is required if
    `wants_new_producer_id` returns True. Raises CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
    """
    if transaction.pending is not None:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "another request is in progress")
    if expected is not None and not _may_go_on(transaction, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{expected} is no longer the producer")
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being completed")
    if transaction.state is ONGOING:
        return transaction.prepare_fence()
    if wants_new_producer_id(transaction, expected):
        assert new_producer_id is not None, "the caller allocates a producer id first"
        return transaction.prepare_new_producer(
            new_producer_id, timeout_ms=timeout_ms, remember_epoch=expected is not None, now_ms=now_ms
        )
    return transaction.prepare_next_epoch(
        timeout_ms=timeout_ms, expected_epoch=None if expected is None else expected.epoch, now_ms=now_ms
    )


def _may_go_on(transaction: Transaction, expected: Producer) -> bool:
    """Return whether the producer id is current, or was until its epochs ran out; True before the first epoch."""
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or expected.id == transaction.producer_id
        or (expected.id == transaction.last_producer_id and is_epoch_exhausted(expected.epoch))
    )


def add_partitions(
    transaction: Transaction,
    producer: Producer,
    partitions: Iterable[TopicPartition],
    *,
    client_version: int = 0,
    pending_first: bool = False,
    now_ms: int,
) -> Transition | None:
    """Add partitions; None if the transaction has all of them.

    With `pending_first`, as in Kafka 4.0.1 and later, the pending transition is tested before producer id and epoch.
    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    if not pending_first:
        _check_producer(transaction, producer)
    if transaction.pending is not None:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "another request is in progress")
    _check_producer(transaction, producer)
    _check_undecided(transaction)
    added = frozenset(partitions)
    if transaction.state is ONGOING and added <= transaction.partitions:
        return None
    return transaction.prepare_add(added, client_version=client_version, now_ms=now_ms)


def check_member(transaction: Transaction, producer: Producer) -> None:
    """Check that a broker may get the partitions of the producer's transaction (KIP-890).

    A pending transition does not matter: partitions count from their record in the journal until their markers are
    written. Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    _check_producer(transaction, producer)
    _check_undecided(transaction)


def end(
    transaction: Transaction,
    producer: Producer,
    *,
    commit: bool,
    client_version: int = 0,
    next_producer_id: int = NO_PRODUCER_ID,
    from_client: bool = True,
    now_ms: int,
) -> Transition | None:
    """Decide the transaction; None if it was already decided in the same way.

    The version of this request determines the epoch check, whatever version the transaction was started with. Without
    `from_client` the request is the second half of a fence and has the fence's epoch. If no transaction is open, an
    abort of version 2 still takes the next epoch, since batches of the producer may still arrive. `next_producer_id` is
    required if `wants_next_producer_id` returns True. Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    state, bumps = transaction.state, client_version >= VERSION_WITH_EPOCH_BUMP
    fencing = transaction.pending is PREPARE_EPOCH_FENCE
    busy = transaction.pending is not None and not fencing
    if busy and bumps:  # the producer may have an id or epoch that is still pending
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "another request is in progress")
    again = bumps and not fencing and is_repeated_end(transaction, producer)
    if transaction.producer_id != producer.id and not (again and producer.id == transaction.last_producer_id):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transaction.producer_id} is not {producer.id}")
    decided_with_bump = bumps and not fencing and state in PREPARED
    if not (again if decided_with_bump else _may_end(transaction, producer, again, from_client)):
        raise KafkaError(ErrorCode.PRODUCER_FENCED, f"epoch {producer.epoch} is not {transaction.producer_epoch}")
    if busy:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "another request is in progress")
    if state is ONGOING:
        if fencing:
            transaction.adopt_fence(None if bumps else producer.epoch)
    elif bumps and not commit and not again and state in AT_REST:
        pass  # an empty transaction
    elif state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT) and again is bumps:
        return None
    elif state is (PREPARE_COMMIT if commit else PREPARE_ABORT):
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the markers are being written")
    else:
        outcome = "committed" if commit else "aborted"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{state.title} cannot be {outcome}")
    return transaction.prepare_end(
        commit=commit, client_version=client_version, next_producer_id=next_producer_id, now_ms=now_ms
    )


def wants_next_producer_id(transaction: Transaction, producer: Producer, client_version: int) -> bool:
    """Return whether ending this transaction takes a new producer id, because the epochs are exhausted."""
    bumps = client_version >= VERSION_WITH_EPOCH_BUMP and transaction.pending is None
    return bumps and transaction.epoch_exhausted and producer == (transaction.producer_id, transaction.producer_epoch)


def is_repeated_end(transaction: Transaction, producer: Producer) -> bool:
    """Return whether the producer has the epoch before the last end of version 2, whose response was lost."""
    if producer.id == transaction.producer_id:
        return transaction.producer_epoch == producer.epoch + 1
    renewed = producer.id == transaction.last_producer_id and transaction.producer_epoch == 0
    return renewed and producer.epoch == PRODUCER_EPOCH_MAX - 1


def _may_end(transaction: Transaction, producer: Producer, again: bool, from_client: bool) -> bool:
    """Return whether the producer's epoch may end this transaction, or repeat its end."""
    if not from_client:
        return producer.epoch >= transaction.producer_epoch
    if transaction.producer_epoch == PRODUCER_EPOCH_MAX:
        return False  # no producer has this epoch, and no other one can follow
    same = producer.epoch == transaction.producer_epoch
    return same or (again and transaction.state in (COMPLETE_COMMIT, COMPLETE_ABORT))


def has_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Return whether the transaction is open for longer than its timeout."""
    open_and_calm = transaction.state is ONGOING and transaction.pending is None
    return open_and_calm and transaction.start_ms + transaction.timeout_ms < now_ms


def has_expired(transaction: Transaction, latest_ms: int) -> bool:
    """Return whether the id is at rest, and was last used at `latest_ms` or before."""
    calm = transaction.pending is None and transaction.state in AT_REST
    return calm and transaction.last_update_ms <= latest_ms


def _check_producer(transaction: Transaction, producer: Producer) -> None:
    if transaction.producer_id != producer.id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transaction.producer_id} is not {producer.id}")
    if transaction.producer_epoch != producer.epoch or producer.epoch == PRODUCER_EPOCH_MAX:
        raise KafkaError(ErrorCode.PRODUCER_FENCED, f"epoch {producer.epoch} is not {transaction.producer_epoch}")


def _check_undecided(transaction: Transaction) -> None:
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being completed")
