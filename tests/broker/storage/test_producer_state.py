from __future__ import annotations

import pytest

from anabranch.broker.storage.producer_state import BATCHES_REMEMBERED, ProducerStates
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import BatchHeader, read_header
from anabranch.protocol.records.control import ControlRecord, ControlType
from tests.broker.storage.batches import NOW_MS, batch

PID = 42


def header(
    epoch: int, sequence: int, records: int = 1, *, transactional: bool = False, pid: int = PID, ms: int = NOW_MS
) -> BatchHeader:
    return read_header(batch(records, producer=(pid, epoch, sequence), transactional=transactional, timestamp_ms=ms))


def refused(states: ProducerStates, candidate: BatchHeader, *, from_client: bool = True) -> ErrorCode | None:
    try:
        states.check(candidate, from_client=from_client)
    except KafkaError as error:
        return error.code
    return None


def after(*headers: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    offset = 100
    for known in headers:
        states.append(known, offset)
        offset += known.record_count
    return states


def test_unknown_producer_may_start_with_any_sequence() -> None:
    for sequence in (0, 1, 500):
        assert refused(ProducerStates(), header(0, sequence)) is None


@pytest.mark.parametrize(
    ("epoch", "sequence", "code"),
    [
        (3, 7, None),  # the next one
        (3, 6, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (3, 8, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (3, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (4, 0, None),  # a new epoch begins at 0
        (4, 7, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (2, 7, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_sequence_is_checked(epoch: int, sequence: int, code: ErrorCode | None) -> None:
    states = after(header(3, 0, 5), header(3, 5, 2))
    assert refused(states, header(epoch, sequence)) is code


def test_sequences_wrap_around() -> None:
    states = after(header(0, 2**31 - 3, 3))
    assert refused(states, header(0, 0)) is None
    assert refused(states, header(0, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_recognised() -> None:
    states = after(*(header(0, 2 * number, 2) for number in range(7)))
    for number in range(7):
        found = states.find_duplicate(header(0, 2 * number, 2))
        if number < 7 - BATCHES_REMEMBERED:
            assert found is None
            assert refused(states, header(0, 2 * number, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            assert found is not None
            assert (found.first_offset, found.last_offset) == (100 + 2 * number, 101 + 2 * number)


def test_differing_batch_is_no_duplicate() -> None:
    states = after(header(1, 0, 2))
    assert states.find_duplicate(header(1, 0, 2)) is not None
    for other in (header(1, 0, 3), header(1, 1, 1), header(0, 0, 2), header(2, 0, 2), header(1, 0, 2, pid=PID + 1)):
        assert states.find_duplicate(other) is None
    assert states.find_duplicate(read_header(batch())) is None


def test_coordinator_batches_are_checked_for_epochs_and_not_sequences() -> None:
    states = after(header(3, 0, 5))
    assert refused(states, header(3, -1), from_client=False) is None
    assert refused(states, header(2, -1), from_client=False) is ErrorCode.INVALID_PRODUCER_EPOCH
    states.append(header(3, -1), 105)
    assert states.find_duplicate(header(3, -1)) is None
    assert refused(states, header(3, 5)) is None


def test_open_transactions_bound_the_last_stable_offset_until_replicated() -> None:
    states = after(header(0, 0, 5))  # 100..104
    assert states.first_unstable_offset(105) is None
    states.append(header(0, 5, 1, transactional=True), 105)
    states.append(header(0, 6, 1, transactional=True), 106)
    states.append(header(0, 0, 1, transactional=True, pid=7), 107)
    assert states.first_unstable_offset(108) == 105
    states.end_transaction(header(0, -1, transactional=True), 108, ControlRecord(ControlType.ABORT, 1))
    assert states.first_unstable_offset(108) == 105
    assert states.first_unstable_offset(109) == 107
    states.end_transaction(header(0, -1, transactional=True, pid=7), 109, ControlRecord(ControlType.COMMIT, 1))
    assert states.first_unstable_offset(110) is None
    assert states.aborted == [(PID, 105, 108, 107)]


def test_non_transactional_batch_in_an_open_transaction_is_refused() -> None:
    states = after(header(0, 0, 1, transactional=True))
    assert refused(states, header(0, 1)) is ErrorCode.INVALID_TXN_STATE
    assert refused(states, header(0, 1, transactional=True)) is None
    states.end_transaction(header(0, -1, transactional=True), 101, ControlRecord(ControlType.COMMIT, 1))
    assert refused(states, header(0, 1)) is None


def test_marker_of_an_older_epoch_is_fenced() -> None:
    states = after(header(2, 0, 1, transactional=True))
    states.end_transaction(header(2, -1, transactional=True), 101, ControlRecord(ControlType.COMMIT, 5))
    for epoch, coordinator_epoch, code in (
        (1, 6, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(KafkaError) as refusal:
            states.check_marker(header(epoch, -1), ControlRecord(ControlType.ABORT, coordinator_epoch))
        assert refusal.value.code is code
    states.check_marker(header(2, -1), ControlRecord(ControlType.ABORT, 5))
    states.check_marker(header(0, -1, pid=99), ControlRecord(ControlType.ABORT, 0))


def test_marker_of_a_new_epoch_resets_sequences() -> None:
    states = after(header(0, 0, 5))
    states.end_transaction(header(1, -1), 105, ControlRecord(ControlType.ABORT, 1))
    assert refused(states, header(0, 5)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(states, header(1, 0)) is None
    assert refused(states, header(1, 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_expire_unless_a_transaction_is_open() -> None:
    states = after(
        header(0, 0, pid=1, ms=1000), header(0, 0, pid=2, ms=2000), header(0, 0, pid=3, ms=1000, transactional=True)
    )
    states.expire(2001, 1000)
    assert [states.get(pid) is not None for pid in (1, 2, 3)] == [False, True, True]
    assert len(states) == 2


def first_batch(states: ProducerStates, epoch: int, sequence: int, **options: object) -> ErrorCode | None:
    try:
        states.check(
            header(epoch, sequence, transactional=True),
            from_client=True,
            verified_only=True,
            **options,  # type: ignore[arg-type]
        )
    except KafkaError as error:
        return error.code
    return None


def test_first_batch_of_a_transaction_needs_a_verification() -> None:
    states = ProducerStates()
    assert first_batch(states, 0, 0) is ErrorCode.INVALID_TXN_STATE
    verification = states.begin_verification(PID, 0, 0, NOW_MS)
    assert verification is not None
    assert first_batch(states, 0, 0) is ErrorCode.INVALID_TXN_STATE
    assert first_batch(states, 0, 0, verification=verification) is None
    assert states.begin_verification(PID, 0, 0, NOW_MS) is verification, (
        "a second request asks about the same beginning"
    )
    states.append(header(0, 0, transactional=True), 100)
    assert first_batch(states, 0, 1) is None, "the transaction is open"
    assert states.begin_verification(PID, 0, 1, NOW_MS) is None


def test_marker_invalidates_earlier_verifications() -> None:
    """Verified, aborted, begun again: the old verification must not admit a batch (KIP-890)."""
    states = ProducerStates()
    verification = states.begin_verification(PID, 0, 0, NOW_MS)
    states.end_transaction(header(0, -1, transactional=True), 100, ControlRecord(ControlType.ABORT, 1))
    assert first_batch(states, 0, 0, verification=verification) is ErrorCode.INVALID_TXN_STATE
    again = states.begin_verification(PID, 0, 0, NOW_MS)
    assert again is not verification
    assert first_batch(states, 0, 0, verification=verification) is ErrorCode.INVALID_TXN_STATE
    assert first_batch(states, 0, 0, verification=again) is None


def test_batch_verified_before_an_earlier_sequence_is_out_of_order() -> None:
    states = ProducerStates()
    verification = states.begin_verification(PID, 1, 4, NOW_MS)
    states.begin_verification(PID, 1, 2, NOW_MS)
    states.begin_verification(PID, 1, 3, NOW_MS)
    assert first_batch(states, 1, 4, verification=verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert first_batch(states, 1, 2, verification=verification) is None
    states.begin_verification(PID, 2, 9, NOW_MS)
    states.begin_verification(PID, 1, 0, NOW_MS)
    assert first_batch(states, 2, 9, verification=verification) is None, "a new epoch counts from where it begins"


def test_epoch_is_checked_before_the_sequence() -> None:
    states = ProducerStates()
    verification = states.begin_verification(PID, 2, 0, NOW_MS)
    states.append(header(3, 0, 5), 100)
    assert first_batch(states, 2, 9, verification=verification) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_verification_of_an_older_epoch_than_the_log_has_is_refused() -> None:
    states = after(header(3, 0, 5))
    for adds in (True, False):
        with pytest.raises(KafkaError) as refusal:
            states.begin_verification(PID, 2, 0, NOW_MS, adds=adds)
        assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert states.begin_verification(PID, 3, 0, NOW_MS, adds=adds) is not None


def test_unused_verification_expires() -> None:
    states = ProducerStates()
    verification = states.begin_verification(PID, 0, 0, 1000)
    states.expire(1999, 1000)
    assert first_batch(states, 0, 0, verification=verification) is None
    states.expire(2000, 1000)
    assert first_batch(states, 0, 0, verification=verification) is ErrorCode.INVALID_TXN_STATE


def test_a_producer_without_an_epoch_is_older_than_all_others() -> None:
    states = after(header(-1, 3, 2))
    assert refused(states, header(-1, 9)) is None, "nothing is known of where it should go on"
    states.append(header(0, 0), 102)
    assert refused(states, header(-1, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
