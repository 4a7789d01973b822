"""The meaning of each error of the transaction coordinators, as a table, and the errors raised to applications.

Source: the request handlers in `TransactionManager` of Kafka's client 3.9. A code that is not listed is retried if it
is retriable and fatal otherwise; for AddPartitionsToTxn, which lists partitions, it is abortable.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from anabranch.protocol.errors import ErrorCode, KafkaError


class TransactionError(KafkaError):
    """A failed transaction: `AbortableError` or `FatalError`."""


class AbortableError(TransactionError):
    """This transaction cannot be committed: abort it. The producer can continue with the next one."""


class FatalError(TransactionError):
    """The producer can never commit again: stop it."""


class ProducerFenced(FatalError):
    """Another producer with the same transactional id has started, or the transaction timed out."""


class TransactionAborted(TransactionError):
    """The record was dropped because its transaction is aborted."""


class Step(enum.Enum):
    """The requests to a coordinator."""

    INITIALIZE = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


class Verdict(enum.Enum):
    """The meanings of a response."""

    DONE = "done"
    LATER = "refused for now: retry"
    UNCERTAIN = "not processed: retry; an earlier attempt may have succeeded"
    MOVED = "another node is the coordinator: find it, and retry"
    ABORTABLE = "the transaction must be aborted"
    UNMAPPED = "the coordinator does not know the producer id: abort locally, and get a new epoch"
    FENCED = "another producer has the transactional id"
    FATAL = "fatal: no request can succeed"


_EVERYWHERE: Final[Mapping[ErrorCode, Verdict]] = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.MOVED,
    ErrorCode.NOT_COORDINATOR: Verdict.MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.UNCERTAIN,
    ErrorCode.CONCURRENT_TRANSACTIONS: Verdict.LATER,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    ErrorCode.PRODUCER_FENCED: Verdict.FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
}
_IN_TRANSACTION: Final[Mapping[ErrorCode, Verdict]] = {
    **_EVERYWHERE,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.UNMAPPED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.UNMAPPED,
    ErrorCode.INVALID_TXN_STATE: Verdict.FATAL,
}
VERDICTS: Final[Mapping[Step, Mapping[ErrorCode, Verdict]]] = {
    Step.INITIALIZE: _EVERYWHERE,
    Step.ADD_PARTITIONS: {
        **_IN_TRANSACTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
        ErrorCode.OPERATION_NOT_ATTEMPTED: Verdict.ABORTABLE,
    },
    Step.ADD_OFFSETS: {**_IN_TRANSACTION, ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE},
    Step.COMMIT_OFFSETS: {
        **_IN_TRANSACTION,
        # The coordinator could not write in time: it may have moved.
        ErrorCode.REQUEST_TIMED_OUT: Verdict.MOVED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
        ErrorCode.FENCED_INSTANCE_ID: Verdict.ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID: Verdict.ABORTABLE,
        ErrorCode.ILLEGAL_GENERATION: Verdict.ABORTABLE,
        ErrorCode.REBALANCE_IN_PROGRESS: Verdict.ABORTABLE,
        ErrorCode.INVALID_TXN_STATE: Verdict.ABORTABLE,
    },
    Step.END: _IN_TRANSACTION,
}
_OTHERWISE: Final[Mapping[Step, Verdict]] = {Step.ADD_PARTITIONS: Verdict.ABORTABLE}
FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""A leader's errors for a batch that would affect every other transaction, too."""


def verdict_of(step: Step, code: ErrorCode) -> Verdict:
    """Return the meaning of an error code in the response to a step."""
    verdict = VERDICTS[step].get(code)
    if verdict is not None:
        return verdict
    return Verdict.LATER if code.retriable else _OTHERWISE.get(step, Verdict.FATAL)
