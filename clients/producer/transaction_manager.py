"""The state machine of one transactional id: allowed calls of the application, and the next request to a coordinator.

    begin       nothing is sent: a transaction exists for its coordinator from the first partition on
    a record    its partition is added to the transaction before the first batch leaves (`admits`)
    offsets     the group's partition is added, then the offsets are sent to the group's coordinator
    commit      once every record is stored and all offsets are accepted, the transaction is ended
    abort       what is not on the wire is dropped; once nothing is on it any more, the transaction is ended

One request is open at a time, and is sent again until its outcome is known: only then is it certain whether the
coordinator knows of a transaction, so that no EndTxn is sent for one that does not exist. `VERDICTS`
says what each answer means. Two kinds of failure follow from it:

    abortable   this transaction cannot be committed; abort it, and the next one may succeed
    fatal       another producer has taken the id over (`ProducerFenced`), or we may not use it: nothing will succeed

A batch that failed leaves a hole in the sequence of its partition, so the abort is followed by InitProducerId with the
present identity, which raises the epoch (KIP-360). So is any transaction of which a request was lost: it may still be
on its way, and an EndTxn that arrives late would end the next transaction of the same epoch. Kafka's own client 3.9
takes that risk; KIP-890 removes it by raising the epoch each time. During a resize the producer's barrier (`switch`)
moves records to other partitions: those are added like any new partition, in the middle of the transaction (K512).

Pure: requests come out (`transaction_calls`), responses go in. Source: KIP-98, KIP-360, KIP-447,
`TransactionManager` of Kafka's client 3.9.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.group_offsets import checked_offsets
from anabranch.clients.producer import transaction_calls
from anabranch.clients.producer.transaction_calls import TransactionalProducer, TransactionCall
from anabranch.clients.producer.transaction_errors import (
    FATAL_FOR_BATCHES,
    AbortableError,
    FatalError,
    ProducerFenced,
    Step,
    TransactionError,
    Verdict,
    verdict_of,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.topic_partition import TopicPartition

UNKNOWN_ATTEMPTS: Final = 6
"""How often to send the offset of an unknown partition: the broker may be starting, or the partition deleted."""


class State(enum.Enum):
    """The state of the producer between and within transactions."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "waiting for a producer id"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that must be aborted"
    FATAL_ERROR = "failed for good"


LEGAL: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset({State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.COMMITTING: frozenset({State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING, State.FATAL_ERROR}),
    State.ABORTING: frozenset({State.READY, State.INITIALIZING, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}


_OPEN: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING})
_DOOMED: Final = frozenset({State.ABORTABLE_ERROR, State.ABORTING, State.FATAL_ERROR})


class _Offsets(NamedTuple):
    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, int]


class TransactionManager:
    """The transactions of one producer. The shell calls `next`, transmits, and reports with `on_response`."""

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = State.UNINITIALIZED
        self.failure: TransactionError | None = None
        """Why the transaction cannot be committed, until it is aborted; or the fatal error."""
        self.producer_id = -1
        self.producer_epoch = -1
        self._bump = False
        self._unmapped = False
        self._lost = False
        """Whether a request of this transaction may still arrive."""
        self._unreported_end: State | None = None
        """The requested end (commit or abort), until the application has been notified of it."""
        self._known = False
        """Whether the coordinator knows the transaction, so that it has to be ended."""
        self._partitions_to_add: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._offsets: deque[_Offsets] = deque()
        self._unknown = 0
        """How often an offset was refused because its partition is unknown."""
        self._open: TransactionCall | None = None

    # calls of the application

    def initialize(self) -> None:
        """Take the transactional id over from an earlier producer. May be repeated, if the start timed out."""
        if self.failure is not None:
            raise self.failure
        if self.state is State.UNINITIALIZED:
            self._move(State.INITIALIZING)

    def begin(self) -> None:
        """Begin a transaction."""
        self._require(State.READY, "begin a transaction")
        self._unreported_end = None
        self._move(State.IN_TRANSACTION)

    def commit(self) -> None:
        """End the transaction with a commit once everything in it is stored; nothing more is added. May be repeated."""
        if self._unreported_end is State.COMMITTING and self.failure is None:
            return
        self._require(State.IN_TRANSACTION, "commit")
        self._unreported_end = State.COMMITTING
        self._move(State.COMMITTING)

    def abort(self) -> None:
        """End the transaction with an abort. May be repeated."""
        if self._unreported_end is State.ABORTING and self.failure is None:
            return
        if self.state not in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            self._require(State.IN_TRANSACTION, "abort")
        self._unreported_end = State.ABORTING
        self._move(State.ABORTING)
        self.failure = None
        self._partitions_to_add.clear()
        self._offsets.clear()

    def on_end_reported(self) -> None:
        """Note that the application was notified of the transaction's end; it may not request that end again."""
        self._unreported_end = None

    def add_offsets(self, offsets: Mapping[TopicPartition, int], group: ConsumerGroupMetadata) -> None:
        """Commit these offsets of a group if, and when, the transaction commits. Raises TypeError or ValueError."""
        self.check_open()
        checked = checked_offsets(offsets)
        if checked:
            self._offsets.append(_Offsets(group, checked))

    def check_open(self) -> None:
        """Raise RuntimeError outside a transaction, and the error of one that has failed."""
        if self.state is not State.IN_TRANSACTION:
            self._require(State.IN_TRANSACTION, "add to a transaction")

    @property
    def offsets_pending(self) -> bool:
        """Whether the group's coordinator has not accepted all offsets yet."""
        return bool(self._offsets)

    # queries of the accumulator

    @property
    def identity(self) -> tuple[int, int] | None:
        """The producer id and epoch; None while a new epoch is requested."""
        if self.producer_id < 0 or self.state in (State.UNINITIALIZED, State.INITIALIZING):
            return None
        return self.producer_id, self.producer_epoch

    @property
    def doomed(self) -> bool:
        """Whether nothing of the transaction needs to be sent any more."""
        return self.state in _DOOMED

    @property
    def enlisting(self) -> bool:
        """Whether partitions wait to be added."""
        return bool(self._partitions_to_add)

    def admits(self, topic: str, index: int) -> bool:
        """Whether batches may be sent to a partition now; if not, it is added to the transaction soon."""
        if self.state not in _OPEN:
            return False
        partition = TopicPartition(topic, index)
        if partition in self._added:
            return True
        self._partitions_to_add[partition] = None
        return False

    def batch_failed(self, code: ErrorCode, why: str) -> None:
        """Note that records of the transaction are not stored, or may not be: abort it, and raise the epoch."""
        if code in FATAL_FOR_BATCHES:
            self._fail(FatalError(code, why))
            return
        if self.state in _OPEN:
            self._fail(AbortableError(code, why))
        self._bump = True

    def batch_dropped(self) -> None:
        """Note that a transmitted batch was given up: its sequence numbers are a gap."""
        self._bump = True

    # requests of the shell

    def next(self, *, settled: bool) -> TransactionCall | None:
        """Return the next request, None if there is none. `settled`: no record is waiting or in flight."""
        if self._open is None:
            self._open = self._choose(settled)
        return self._open

    @property
    def _producer(self) -> TransactionalProducer:
        return TransactionalProducer(self.transactional_id, self.producer_id, self.producer_epoch)

    def _choose(self, settled: bool) -> TransactionCall | None:
        if self.state is State.INITIALIZING:
            return transaction_calls.initialize(self._producer, self.timeout_ms)
        if self.state in _OPEN:
            if self._partitions_to_add:
                return transaction_calls.add_partitions(self._producer, self._partitions_to_add)
            if self._offsets:
                group, offsets = self._offsets[0]
                if group.group_id not in self._groups:
                    return transaction_calls.add_group(self._producer, group.group_id)
                return transaction_calls.commit_offsets(self._producer, group, offsets)
        if self.state not in (State.COMMITTING, State.ABORTING) or not settled:
            return None
        if self._known and not self._unmapped:
            return transaction_calls.end(self._producer, commit=self.state is State.COMMITTING)
        self._on_end()
        return self._choose(settled)

    def on_lost(self, call: TransactionCall) -> None:
        """Note that a request got no response: it is sent again, and may arrive twice."""
        assert call is self._open, "another request is open"
        self._lost = self._lost or call.step is not Step.INITIALIZE

    def on_response(self, call: TransactionCall, response: Any) -> Verdict:
        """Handle a response. `next` returns requests to retry."""
        code, where = transaction_calls.outcome(call.step, response)
        verdict = self.on_refusal(call, code, where)
        if verdict is Verdict.DONE:
            self._done(call, response)
        return verdict

    def on_refusal(self, call: TransactionCall, code: ErrorCode, where: str = "") -> Verdict:
        """Judge an error code, also one met before the request could be sent."""
        assert call is self._open, "another request is open"
        verdict = verdict_of(call.step, code)
        if verdict in (Verdict.MOVED, Verdict.UNCERTAIN):
            return verdict
        self._open = None
        if call.step is Step.COMMIT_OFFSETS and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown += 1
            verdict = Verdict.LATER if self._unknown < UNKNOWN_ATTEMPTS else Verdict.ABORTABLE
        if call.step is Step.ADD_PARTITIONS and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # A merge may have removed a partition meanwhile. Those that records still wait for are added again.
            self._partitions_to_add.clear()
        text = f"{call.step.value} of {self.transactional_id!r}{where and f', {where}'}"
        if verdict is Verdict.FENCED:
            self._fail(ProducerFenced(ErrorCode.PRODUCER_FENCED, text))
        elif verdict is Verdict.FATAL or (verdict is Verdict.ABORTABLE and call.step is Step.END and self.doomed):
            self._fail(FatalError(code, text))
        elif verdict in (Verdict.ABORTABLE, Verdict.UNMAPPED):
            if verdict is Verdict.UNMAPPED:
                self._unmapped = self._bump = True
            # While aborting, errors change nothing: the abort continues.
            if self.state in _OPEN:
                self._fail(AbortableError(code, text))
        return verdict

    def _done(self, call: TransactionCall, response: Any) -> None:
        request = call.request
        match call.step:
            case Step.INITIALIZE:
                self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
                self._move(State.READY)
            case Step.ADD_PARTITIONS:
                self._known = True
                for topic in request.v3_and_below_topics:
                    for index in topic.partitions:
                        self._added.add(TopicPartition(topic.name, index))
                        self._partitions_to_add.pop(TopicPartition(topic.name, index), None)
            case Step.ADD_OFFSETS:
                self._known = True
                self._groups.add(request.group_id)
            case Step.COMMIT_OFFSETS:
                if self._offsets:
                    self._offsets.popleft()
            case Step.END:
                self._on_end()

    def _on_end(self) -> None:
        """Reset after the coordinator has completed the transaction."""
        self._known = self._unmapped = False
        self._partitions_to_add.clear()
        self._added.clear()
        self._groups.clear()
        self._offsets.clear()
        self._unknown = 0
        assert not self._bump or self.state is State.ABORTING, "a transaction with a failed batch is not committed"
        if self._bump or self._lost:
            self._bump = self._lost = False
            self._move(State.INITIALIZING)
        else:
            self._move(State.READY)

    # states

    def _require(self, state: State, what: str) -> None:
        if self.failure is not None:
            raise self.failure
        if self.state is not state:
            raise RuntimeError(f"cannot {what}: the producer is {self.state.value}")

    def _fail(self, error: TransactionError) -> None:
        if self.state is State.FATAL_ERROR:
            return
        self._move(State.FATAL_ERROR if isinstance(error, FatalError) else State.ABORTABLE_ERROR)
        self.failure = error

    def _move(self, to: State) -> None:
        assert to in LEGAL[self.state], f"{self.transactional_id}: {self.state.name} -> {to.name} is not a transition"
        self.state = to
