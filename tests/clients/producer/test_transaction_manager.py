"""The producer's transaction state agrees with the coordinator's after losses, moves and refusals.

Method: the table is walked; single stories are played against a model of the coordinators; and random ones, in which
requests and answers vanish and every kind of error is answered, end with client and coordinator of one mind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import pytest

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.producer.transaction_errors import (
    VERDICTS,
    AbortableError,
    FatalError,
    ProducerFenced,
    Step,
    Verdict,
    verdict_of,
)
from anabranch.clients.producer.transaction_manager import LEGAL, UNKNOWN_ATTEMPTS, State, TransactionManager
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.topic_partition import TopicPartition
from tests.cases import for_each
from tests.clients.producer.coordinator import Coordinator, ask

GROUP = ConsumerGroupMetadata("g", 3, "m")
SOURCE = TopicPartition("in", 0)


def ready() -> tuple[TransactionManager, Coordinator]:
    transactions, coordinator = TransactionManager("id", 60000), Coordinator()
    transactions.initialize()
    assert ask(transactions, coordinator) == [Step.INITIALIZE]
    return transactions, coordinator


def in_transaction() -> tuple[TransactionManager, Coordinator]:
    transactions, coordinator = ready()
    transactions.begin()
    return transactions, coordinator


def failing(code: ErrorCode, step: Step = Step.ADD_PARTITIONS) -> TransactionManager:
    """A producer that has just been answered with an error."""
    transactions, coordinator = in_transaction()
    if step is Step.ADD_PARTITIONS:
        transactions.admits("t", 0)
    elif step is Step.END:
        transactions.admits("t", 0)
        ask(transactions, coordinator)
        transactions.commit()
    else:
        transactions.add_offsets({SOURCE: 5}, GROUP)
        if step is Step.COMMIT_OFFSETS:
            question = transactions.next(settled=False)
            assert question is not None
            transactions.on_response(question, coordinator.answer(question))
    question = transactions.next(settled=True)
    assert question is not None
    assert question.step is step
    transactions.on_response(question, coordinator.answer(question, code))
    return transactions


@for_each(product(State, State))
def test_only_listed_state_transitions_are_allowed(before: State, after: State) -> None:
    transactions = TransactionManager("id", 1)
    transactions.state = before
    if after in LEGAL[before]:
        transactions._move(after)
        assert transactions.state is after
    else:
        with pytest.raises(AssertionError, match="is not a transition"):
            transactions._move(after)


def test_every_state_is_reachable_and_only_failure_is_final() -> None:
    assert {after for following in LEGAL.values() for after in following} == set(State) - {State.UNINITIALIZED}
    assert [state for state, following in LEGAL.items() if not following] == [State.FATAL_ERROR]


def test_start_that_timed_out_may_be_repeated() -> None:
    transactions, coordinator = TransactionManager("id", 60000), Coordinator()
    transactions.initialize()
    assert transactions.next(settled=True) is not None
    transactions.initialize()
    assert ask(transactions, coordinator) == [Step.INITIALIZE]
    transactions.initialize()
    assert transactions.state is State.READY
    fenced = failing(ErrorCode.PRODUCER_FENCED)
    with pytest.raises(ProducerFenced):
        fenced.initialize()


def test_partitions_are_added_once_and_together_before_first_send() -> None:
    transactions, coordinator = in_transaction()
    assert not transactions.admits("t", 0)
    assert not transactions.admits("t", 1)
    assert not transactions.admits("u", 0)
    assert ask(transactions, coordinator) == [Step.ADD_PARTITIONS]
    assert coordinator.partitions == {TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)}
    assert transactions.admits("t", 1)
    assert ask(transactions, coordinator) == []
    transactions.commit()
    assert ask(transactions, coordinator, settled=False) == []
    assert ask(transactions, coordinator) == [Step.END]
    assert coordinator.ended == [True]
    transactions.begin()
    assert not transactions.admits("t", 1)


def test_partitions_may_be_added_while_commit_waits_for_records() -> None:
    """A resize moves records to partitions that were not in the transaction (K512)."""
    transactions, coordinator = in_transaction()
    transactions.admits("t", 0)
    ask(transactions, coordinator, settled=False)
    transactions.commit()
    assert not transactions.admits("t", 3)
    assert ask(transactions, coordinator, settled=False) == [Step.ADD_PARTITIONS]
    assert transactions.admits("t", 3)


def test_offsets_are_added_before_they_are_sent_and_before_end() -> None:
    transactions, coordinator = in_transaction()
    transactions.add_offsets({SOURCE: 5}, GROUP)
    transactions.add_offsets({SOURCE: 6}, GROUP)
    transactions.commit()
    assert ask(transactions, coordinator) == [Step.ADD_OFFSETS, Step.COMMIT_OFFSETS, Step.COMMIT_OFFSETS, Step.END]
    assert coordinator.committed == {SOURCE: 6}


def test_empty_transaction_sends_no_request() -> None:
    transactions, coordinator = in_transaction()
    transactions.commit()
    assert ask(transactions, coordinator) == []
    assert transactions.state is State.READY
    transactions.begin()
    transactions.abort()
    assert ask(transactions, coordinator) == []
    assert transactions.state is State.READY
    assert transactions.identity == (7, 0)


def test_abort_first_repeats_unanswered_add_partitions() -> None:
    """AddPartitionsToTxn was sent without a response."""
    transactions, coordinator = in_transaction()
    transactions.admits("t", 0)
    lost = transactions.next(settled=False)
    assert lost is not None
    coordinator.answer(lost)
    transactions.on_lost(lost)
    transactions.abort()
    assert ask(transactions, coordinator) == [Step.ADD_PARTITIONS, Step.END, Step.INITIALIZE]
    assert coordinator.ended == [False]
    assert transactions.state is State.READY


def test_end_request_without_response_is_repeated() -> None:
    transactions, coordinator = in_transaction()
    transactions.admits("t", 0)
    ask(transactions, coordinator)
    transactions.commit()
    lost = transactions.next(settled=True)
    assert lost is not None
    late = coordinator.answer(lost)
    assert late.error_code == ErrorCode.NONE
    transactions.on_lost(lost)
    assert ask(transactions, coordinator) == [Step.END, Step.INITIALIZE]
    assert coordinator.ended == [True]
    transactions.begin()
    transactions.admits("t", 0)
    ask(transactions, coordinator, settled=False)
    assert coordinator.answer(lost).error_code == ErrorCode.PRODUCER_FENCED, "the first one, arriving late"
    assert coordinator.ongoing


def test_failed_batch_dooms_transaction_and_bumps_epoch() -> None:
    transactions, coordinator = in_transaction()
    transactions.admits("t", 0)
    ask(transactions, coordinator)
    transactions.batch_failed(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "t-0")
    assert transactions.doomed
    assert not transactions.admits("t", 0)
    for refused in (transactions.check_open, transactions.commit, lambda: transactions.add_offsets({}, GROUP)):
        with pytest.raises(AbortableError, match="OUT_OF_ORDER"):
            refused()
    transactions.abort()
    assert ask(transactions, coordinator) == [Step.END, Step.INITIALIZE]
    assert transactions.identity == (7, 1)
    transactions.begin()


def test_batch_that_fails_during_abort_bumps_epoch() -> None:
    transactions, coordinator = in_transaction()
    transactions.admits("t", 0)
    ask(transactions, coordinator)
    transactions.abort()
    transactions.batch_dropped()
    assert ask(transactions, coordinator) == [Step.END, Step.INITIALIZE]


def test_unknown_producer_id_is_replaced_without_end_request() -> None:
    transactions = failing(ErrorCode.INVALID_PRODUCER_ID_MAPPING, Step.END)
    with pytest.raises(AbortableError, match="INVALID_PRODUCER_ID_MAPPING"):
        transactions.commit()
    transactions.abort()
    question = transactions.next(settled=True)
    assert question is not None
    assert (question.step, question.request.producer_id, question.request.producer_epoch) == (Step.INITIALIZE, 7, 0)


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.INITIALIZE])
@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_fenced_producer_fails(step: Step, code: ErrorCode) -> None:
    transactions = failing(code, step)
    for refused in (transactions.begin, transactions.commit, transactions.abort, transactions.check_open):
        with pytest.raises(ProducerFenced):
            refused()
    assert transactions.next(settled=True) is None


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
)
def test_offsets_of_stale_member_abort_and_keep_epoch(code: ErrorCode) -> None:
    transactions = failing(code, Step.COMMIT_OFFSETS)
    with pytest.raises(AbortableError, match=code.name):
        transactions.commit()
    transactions.abort()
    question = transactions.next(settled=True)
    assert question is not None
    assert (question.step, question.request.committed) == (Step.END, False)


def refused_as_unknown() -> tuple[TransactionManager, Coordinator]:
    """A producer whose first partition was removed by a merge before it could be added."""
    transactions, coordinator = in_transaction()
    assert not transactions.admits("t", 3)
    question = transactions.next(settled=False)
    assert question is not None
    refused = coordinator.answer(question, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert transactions.on_response(question, refused) is Verdict.LATER
    return transactions, coordinator


def test_removed_partition_whose_records_have_moved_is_not_added_again() -> None:
    transactions, coordinator = refused_as_unknown()
    assert not transactions.admits("t", 1)
    assert ask(transactions, coordinator, settled=False) == [Step.ADD_PARTITIONS]
    assert coordinator.partitions == {TopicPartition("t", 1)}


def test_unknown_partition_whose_records_still_wait_is_added_again() -> None:
    transactions, coordinator = refused_as_unknown()
    assert not transactions.admits("t", 3)
    assert ask(transactions, coordinator, settled=False) == [Step.ADD_PARTITIONS]
    assert transactions.admits("t", 3)


def test_commit_does_not_wait_for_removed_partition() -> None:
    transactions, coordinator = refused_as_unknown()
    transactions.commit()
    assert ask(transactions, coordinator) == []
    assert transactions.state is State.READY


def test_offset_of_removed_partition_is_dropped_after_retries() -> None:
    """A coordinator may not know a new partition yet; after a while, an unknown one counts as removed."""
    transactions, coordinator = in_transaction()
    transactions.add_offsets({SOURCE: 5}, GROUP)
    question = transactions.next(settled=False)
    assert question is not None
    transactions.on_response(question, coordinator.answer(question))
    for attempt in range(1, UNKNOWN_ATTEMPTS + 1):
        question = transactions.next(settled=False)
        assert question is not None
        assert question.step is Step.COMMIT_OFFSETS
        verdict = transactions.on_response(question, coordinator.answer(question, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        assert verdict is (Verdict.LATER if attempt < UNKNOWN_ATTEMPTS else Verdict.ABORTABLE)
    transactions.abort()
    ask(transactions, coordinator)
    assert coordinator.ended == [False]
    transactions.begin()
    transactions.add_offsets({SOURCE: 5}, GROUP)
    ask(transactions, coordinator, settled=False)
    assert not transactions.offsets_pending


@for_each(product(Step, ErrorCode))
def test_every_error_code_has_a_verdict_and_retriable_ones_are_retried(step: Step, code: ErrorCode) -> None:
    verdict = verdict_of(step, code)
    if code not in VERDICTS[step]:
        expected = Verdict.ABORTABLE if step is Step.ADD_PARTITIONS else Verdict.FATAL
        assert verdict is (Verdict.LATER if code.retriable else expected)
    if code.retriable:
        assert verdict in (Verdict.LATER, Verdict.UNCERTAIN, Verdict.MOVED)


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
def test_batch_error_that_dooms_every_transaction_is_fatal(code: ErrorCode) -> None:
    transactions, _ = in_transaction()
    transactions.batch_failed(code, "t-0")
    with pytest.raises(FatalError):
        transactions.abort()


WEATHER = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


@for_each(range(300))
def test_client_and_coordinator_agree_on_outcome(seed: int) -> None:
    """Reported commits are commits, aborts are aborts, and no other transaction ends."""
    rng = random.Random(seed)
    transactions, coordinator = ready()
    offsets: dict[TopicPartition, int] = {}
    for position in range(12):
        coordinator.completing = rng.choice((0, 0, 1, 2))
        before = len(coordinator.ended)
        transactions.begin()
        given = wanted = 0
        for _ in range(rng.randrange(4)):
            transactions.admits("t", rng.randrange(3))
            wanted += 1
            _stormy(rng, transactions, coordinator)
            if rng.random() < 0.5:
                transactions.add_offsets({SOURCE: position}, GROUP)
                given += 1
                _stormy(rng, transactions, coordinator)
        commits = rng.random() < 0.5
        if commits:
            transactions.commit()
        else:
            if rng.random() < 0.3:
                transactions.batch_failed(ErrorCode.REQUEST_TIMED_OUT, "t-0")
            transactions.abort()
        for _ in range(200):
            _stormy(rng, transactions, coordinator)
        assert transactions.state is State.READY, transactions.failure
        assert not coordinator.ongoing
        assert coordinator.ended[before:] in ([[True]] if commits and wanted else [[], [commits]])
        if commits and given:
            offsets = {SOURCE: position}
        assert coordinator.committed == offsets
        assert transactions.identity == (coordinator.producer_id, coordinator.epoch)


def _stormy(rng: random.Random, transactions: TransactionManager, coordinator: Coordinator) -> None:
    for _ in range(rng.randrange(6)):
        question = transactions.next(settled=True)
        if question is None:
            return
        fate = rng.random()
        if fate < 0.3:
            # Lost; or done, and nobody hears of it.
            if fate < 0.15:
                coordinator.answer(question)
            transactions.on_lost(question)
            continue
        code = rng.choice(WEATHER) if fate < 0.5 else ErrorCode.NONE
        transactions.on_response(question, coordinator.answer(question, code))


@pytest.mark.parametrize("end", [TransactionManager.commit, TransactionManager.abort])
def test_timed_out_end_may_be_repeated_until_it_is_reported(
    end: Callable[[TransactionManager], None],
) -> None:
    """After a timeout, a repeated request returns the outcome, however old it is."""
    transactions, coordinator = in_transaction()
    transactions.admits("t", 0)
    ask(transactions, coordinator)
    end(transactions)
    assert ask(transactions, coordinator) == [Step.END]
    assert transactions.state is State.READY
    end(transactions)
    assert ask(transactions, coordinator) == []
    transactions.on_end_reported()
    with pytest.raises(RuntimeError, match="the producer is ready"):
        end(transactions)
