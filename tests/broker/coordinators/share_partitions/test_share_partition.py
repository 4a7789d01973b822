"""Each offset has at most one holder, and an ended one is never delivered again.

Method: cases by hand, and schedules of members that acquire, acknowledge, vanish and fail to store, compared with a
model that knows each offset by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.coordinators.share_partitions.in_flight import Acquired, RecordState, StateBatch
from anabranch.broker.coordinators.share_partitions.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    SharePartition,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

LIMIT = 3
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


def shared(
    start: int = 0,
    batches: list[StateBatch] | None = None,
    max_locks: int = 100,
    *,
    limit: int = LIMIT,
    isolates: bool = False,
) -> SharePartition:
    return SharePartition(start, batches or [], delivery_limit=limit, max_locks=max_locks, isolates=isolates)


def acquire(
    one: SharePartition, member: str, batches: list[tuple[int, int]], max_records: int = 500, *, strict: bool = False
) -> list[Acquired]:
    return one.acquire(
        member, batches, max_records=max_records, batch_size=max_records, strict=strict, locked_until_ms=100
    )


def say(one: SharePartition, member: str, first: int, last: int, *types: int) -> list[StateBatch]:
    return one.acknowledge(member, [Acknowledgement(first, last, types)], renewed_until_ms=200)


def done(one: SharePartition, member: str, first: int, last: int, *types: int) -> None:
    one.complete(say(one, member, first, last, *types))


def test_members_acquire_different_records_of_one_partition() -> None:
    one = shared()
    assert acquire(one, "a", [(0, 9)]) == [Acquired(0, 9, 1)]
    assert acquire(one, "b", [(0, 9)]) == []
    assert acquire(one, "b", [(10, 19)]) == [Acquired(10, 19, 1)]
    assert (one.start_offset, one.end_offset, one.next_fetch_offset) == (0, 19, 20)


def test_start_offset_advances_over_finished_records() -> None:
    one = shared()
    acquire(one, "a", [(0, 9)])
    done(one, "a", 5, 9, ACCEPT)
    assert (one.start_offset, one.standing_after([])) == (0, (0, 5))
    change = say(one, "a", 1, 2, ACCEPT, REJECT)
    assert one.standing_after(change) == (0, 7)
    one.complete(change)
    last = say(one, "a", 0, 0, ACCEPT)
    assert one.standing_after(last) == (3, 5)
    one.complete(last)
    done(one, "a", 3, 4, AcknowledgeType.GAP, ACCEPT)
    assert (one.start_offset, one.end_offset, one.flights()) == (10, 9, [])


def test_released_record_is_redelivered_up_to_the_delivery_limit() -> None:
    one = shared()
    for count in range(1, LIMIT + 1):
        assert acquire(one, "a", [(0, 0)]) == [Acquired(0, 0, count)]
        done(one, "a", 0, 0, RELEASE)
    assert one.start_offset == 1


def test_acquisition_lock_expires_and_can_be_renewed() -> None:
    one = shared()
    acquire(one, "a", [(0, 1)])
    assert say(one, "a", 1, 1, RENEW) == []
    assert one.next_lock_end_ms == 100
    assert one.expire(99) == []
    expired = one.expire(100)
    assert expired == [StateBatch(0, 0, RecordState.AVAILABLE, 1)]
    one.complete(expired)
    assert (one.next_fetch_offset, one.next_lock_end_ms) == (0, 200)


def test_records_being_persisted_are_not_acquirable() -> None:
    one = shared()
    acquire(one, "a", [(0, 1)])
    change = say(one, "a", 0, 1, RELEASE)
    assert acquire(one, "b", [(0, 1)]) == []
    assert one.expire(1000) == one.release("a") == []
    with pytest.raises(KafkaError) as refused:
        say(one, "a", 0, 0, ACCEPT)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    one.roll_back(change)
    done(one, "a", 0, 1, ACCEPT)
    assert one.start_offset == 2


@pytest.mark.parametrize(
    ("member", "first", "last", "code"),
    [
        ("b", 0, 0, ErrorCode.INVALID_RECORD_STATE),
        ("a", 0, 10, ErrorCode.INVALID_REQUEST),
        ("a", 3, 9, ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_acknowledging_records_not_acquired_is_refused(member: str, first: int, last: int, code: ErrorCode) -> None:
    one = shared()
    acquire(one, "a", [(0, 4)])
    acquire(one, "b", [(5, 9)])
    with pytest.raises(KafkaError) as refused:
        say(one, member, first, last, ACCEPT)
    assert refused.value.code is code
    assert [flight.becomes for flight in one.flights()] == [None, None], "nothing of it happened"


def test_acknowledgement_below_the_start_offset_is_ignored() -> None:
    one = shared()
    acquire(one, "a", [(0, 3)])
    done(one, "a", 0, 1, ACCEPT)
    assert say(one, "a", 0, 2, ACCEPT) == [StateBatch(2, 2, RecordState.ACKNOWLEDGED, 1)]


def test_max_records_extends_to_the_batch_end_unless_strict() -> None:
    assert acquire(shared(), "a", [(0, 9), (10, 19), (20, 29)], 11) == [Acquired(0, 19, 1)]
    one = shared()
    assert acquire(one, "a", [(0, 9), (10, 19)], 11, strict=True) == [Acquired(0, 10, 1)]
    one.complete(one.release("a"))
    assert acquire(one, "a", [(0, 9), (10, 19)], 4, strict=True) == [Acquired(0, 3, 2)]


def test_large_acquisitions_are_split_by_batch_size() -> None:
    one = shared()
    acquired = one.acquire(
        "a", [(0, 3), (4, 7), (8, 11)], max_records=100, batch_size=5, strict=False, locked_until_ms=0
    )
    assert acquired == [Acquired(0, 7, 1), Acquired(8, 11, 1)]


def test_only_fetched_offsets_of_a_range_are_acquired() -> None:
    one = shared()
    acquire(one, "a", [(0, 4), (5, 9)])
    one.complete(one.release("a"))
    assert acquire(one, "b", [(0, 4)]) == [Acquired(0, 4, 2)]
    assert one.next_fetch_offset == 5


def test_full_window_acquires_nothing_until_records_are_finished() -> None:
    one = shared(max_locks=10)
    acquire(one, "a", [(0, 9)])
    assert one.full
    assert acquire(one, "b", [(10, 19)]) == []
    done(one, "a", 9, 9, RELEASE)
    assert not one.full
    assert acquire(one, "b", [(0, 9), (10, 19)]) == [Acquired(9, 9, 2)]
    done(one, "a", 0, 8, ACCEPT)
    assert acquire(one, "b", [(10, 19)]) == [Acquired(10, 19, 1)]


def test_offsets_without_a_batch_are_archived() -> None:
    one = shared()
    acquire(one, "a", [(0, 9)])
    one.complete(one.release("a"))
    assert acquire(one, "a", [(5, 6), (12, 14)]) == [Acquired(5, 6, 2), Acquired(12, 14, 1)]
    assert one.start_offset == 5
    done(one, "a", 5, 6, ACCEPT)
    done(one, "a", 12, 14, ACCEPT)
    assert one.start_offset == 15


def test_offsets_without_a_batch_leave_records_before_them_to_their_member() -> None:
    one = shared()
    acquire(one, "a", [(0, 9)])
    assert acquire(one, "b", [(12, 14)]) == [Acquired(12, 14, 1)]
    assert [(flight.first, flight.last) for flight in one.flights()] == [(0, 9), (10, 11), (12, 14)]
    done(one, "a", 0, 9, ACCEPT)
    assert one.start_offset == 12


def test_deleted_records_are_finished() -> None:
    one = shared()
    acquire(one, "a", [(0, 9)])
    change = say(one, "a", 2, 3, ACCEPT)
    one.move_start(5)
    assert one.start_offset == 2, "what is being stored is not forgotten"
    one.complete(change)
    assert one.start_offset == 5
    one.move_start(50)
    assert (one.start_offset, one.next_fetch_offset) == (50, 50)
    acquire(one, "a", [(50, 59)])
    change = say(one, "a", 50, 59, ACCEPT)
    one.move_start(80)
    assert one.next_fetch_offset == 80
    one.complete(change)
    assert one.start_offset == 80


def test_deletion_of_all_that_was_acquired_adds_no_empty_range() -> None:
    one = shared()
    acquire(one, "a", [(0, 9)])
    change = say(one, "a", 5, 9, ACCEPT)
    one.move_start(10)
    assert [(flight.first, flight.last) for flight in one.flights()] == [(5, 9)]
    one.complete(change)
    assert (one.start_offset, one.flights()) == (10, [])


def test_records_of_an_aborted_transaction_are_archived() -> None:
    one = shared()
    acquired = acquire(one, "a", [(0, 9)])
    one.archive(0, 4)
    assert one.start_offset == 5
    assert one.still_acquired(acquired) == [Acquired(5, 9, 1)]
    with pytest.raises(KafkaError):
        say(one, "a", 6, 10, ACCEPT)
    done(one, "a", 5, 9, ACCEPT)


def test_gaps_of_stored_state_are_acquirable() -> None:
    stored = [StateBatch(12, 13, RecordState.ACKNOWLEDGED, 1), StateBatch(16, 16, RecordState.AVAILABLE, 2)]
    one = shared(10, stored)
    assert (one.start_offset, one.end_offset, one.next_fetch_offset) == (10, 16, 10)
    assert acquire(one, "a", [(10, 19)]) == [
        Acquired(10, 11, 1),
        Acquired(14, 15, 1),
        Acquired(16, 16, 3),
        Acquired(17, 19, 1),
    ]
    assert shared(10, [StateBatch(10, 11, RecordState.ARCHIVED, 1)]).start_offset == 12


def test_skipped_offsets_are_acquired_batch_by_batch() -> None:
    one = shared(0, [StateBatch(90, 99, RecordState.ACKNOWLEDGED, 1)], max_locks=200)
    batches = [(at, at + 9) for at in range(0, 120, 10)]
    assert acquire(one, "a", batches, 15) == [Acquired(0, 19, 1)]
    assert acquire(one, "a", batches, 15, strict=True) == [Acquired(20, 34, 1)]
    assert acquire(one, "a", batches, 61) == [Acquired(35, 89, 1), Acquired(100, 109, 1)]


def delivered(one: SharePartition, batches: list[tuple[int, int]], times: int) -> None:
    """Deliver everything this often, and release it."""
    for _ in range(times):
        acquire(one, "a", batches)
        one.complete(one.release("a"))


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(2, [500, 500]), (3, [500, 500, 1]), (5, [500, 500, 500, 250, 1]), (6, [500, 500, 500, 250, 125, 1])],
)
def test_repeatedly_failing_batch_is_delivered_in_smaller_parts(limit: int, sizes: list[int]) -> None:
    one, batches = shared(max_locks=1000, limit=limit, isolates=True), [(0, 499)]
    for count, size in enumerate(sizes, 1):
        assert acquire(one, "a", batches) == [Acquired(0, size - 1, count)]
        one.complete(one.release("a"))
    assert one.start_offset == sizes[-1], "only what came alone is given up"


def test_without_isolation_a_failing_batch_is_archived_as_a_whole() -> None:
    one = shared()
    delivered(one, [(0, 9)], LIMIT)
    assert one.start_offset == 10


def test_repeatedly_failed_records_are_not_acquired_with_others() -> None:
    one = shared(limit=5, isolates=True)
    acquire(one, "a", [(0, 3)])
    one.complete(one.release("a"))
    acquire(one, "b", [(0, 3)])
    acquire(one, "a", [(4, 7)])
    one.complete(one.release("a"))
    delivered(one, [(4, 7)], 2)
    one.complete(one.release("b"))
    batches = [(0, 3), (4, 7), (8, 11)]
    assert acquire(one, "a", batches) == [Acquired(0, 3, 3)]
    assert acquire(one, "b", batches) == [Acquired(4, 5, 4)]
    assert acquire(one, "b", batches) == [Acquired(6, 7, 4)]
    assert acquire(one, "b", batches) == [Acquired(8, 11, 1)]


def test_last_delivery_of_a_record_is_acquired_alone() -> None:
    one = shared(limit=5, isolates=True)
    acquire(one, "a", [(0, 7)])
    done(one, "a", 2, 7, RELEASE)
    for _ in range(3):
        acquire(one, "b", [(2, 7)])
        one.complete(one.release("b"))
    one.complete(one.release("a"))
    acquired = [acquire(one, "b", [(0, 7)], strict=strict) for strict in (False, True, False)]
    assert acquired == [[Acquired(0, 1, 2)], [Acquired(2, 2, 5)], [Acquired(3, 3, 5)]]
    one = shared(0, [StateBatch(0, 1, RecordState.AVAILABLE, 3), StateBatch(2, 2, RecordState.AVAILABLE, 4)], limit=5)
    assert acquire(one, "a", [(0, 2)]) == [Acquired(0, 1, 4), Acquired(2, 2, 5)], "Kafka 4.1"


def test_strict_request_of_failed_records_keeps_max_records() -> None:
    one = shared(limit=5, isolates=True)
    delivered(one, [(0, 7)], 3)
    assert acquire(one, "a", [(0, 7)], 3, strict=True) == [Acquired(0, 2, 4)]


@dataclass
class Offset:
    """One offset, as the model knows it."""

    state: RecordState
    count: int = 0
    member: str = ""


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "strict", "accept", "release", "reject", "leave", "expire", "fail", "delete"]),
        st.sampled_from("abc"),
        st.integers(0, 12),
        st.integers(1, 9),
    ),
    max_size=60,
)


@given(steps=STEPS, width=st.integers(1, 5), isolates=st.booleans())
def test_random_histories_equal_a_per_offset_model(
    steps: list[tuple[str, str, int, int]], width: int, isolates: bool
) -> None:
    one = shared(max_locks=20, isolates=isolates)
    model: dict[int, Offset] = {}
    for what, member, back, count in steps:
        if what in ("acquire", "strict"):
            begin = one.next_fetch_offset // width * width
            batches = [(at, at + width - 1) for at in range(begin, begin + 3 * width, width)]
            some = acquire(one, member, batches, count, strict=what == "strict")
            last_times = [got for got in some if got.delivery_count == LIMIT]
            assert not isolates or not last_times or [got.last - got.first for got in some] == [0]
            assert what != "strict" or sum(got.last - got.first + 1 for got in some) <= count
            for got in some:
                for offset in range(got.first, got.last + 1):
                    known = model.setdefault(offset, Offset(RecordState.AVAILABLE))
                    assert known.state is RecordState.AVAILABLE, f"{offset} was {known}"
                    known.state, known.member = RecordState.ACQUIRED, member
                    known.count += 1
                    assert known.count == got.delivery_count <= LIMIT
        elif what in ("accept", "release", "reject", "fail"):
            first = max(one.end_offset - back, 0)
            last = first + count - 1
            held = all(
                offset < one.start_offset
                or (offset in model and (model[offset].state, model[offset].member) == (RecordState.ACQUIRED, member))
                for offset in range(first, last + 1)
            )
            type_ = {"accept": ACCEPT, "reject": REJECT}.get(what, RELEASE)
            if not held:
                with pytest.raises(KafkaError):
                    say(one, member, first, last, type_)
                continue
            change = say(one, member, first, last, type_)
            if what == "fail":
                one.roll_back(change)
                continue
            one.complete(change)
            for offset in range(first, last + 1):
                if (known := model.get(offset)) is not None and known.state is RecordState.ACQUIRED:
                    settle(known, type_)
        elif what == "delete":
            one.move_start(one.start_offset + back % 3)
            for offset, known in model.items():
                if offset < one.start_offset:
                    known.state = RecordState.ARCHIVED
        else:
            one.complete(one.release(member) if what == "leave" else one.expire(100))
            for known in model.values():
                if known.state is RecordState.ACQUIRED and (what == "expire" or known.member == member):
                    settle(known, RELEASE)
        check(one, model)


def settle(known: Offset, type_: AcknowledgeType) -> None:
    if type_ is ACCEPT:
        known.state = RecordState.ACKNOWLEDGED
    elif type_ is RELEASE and known.count < LIMIT:
        known.state = RecordState.AVAILABLE
    else:
        known.state = RecordState.ARCHIVED


def check(one: SharePartition, model: dict[int, Offset]) -> None:
    at = one.start_offset
    for flight in one.flights():
        assert flight.first == at <= flight.last, "no holes, no overlaps"
        for offset in range(flight.first, flight.last + 1):
            known = model.get(offset, Offset(RecordState.ARCHIVED))
            assert (flight.state, flight.delivery_count) == (known.state, known.count)
        at = flight.last + 1
    assert all(known.state.terminal for offset, known in model.items() if offset < one.start_offset)
    assert not one.flights() or not one.flights()[0].state.terminal
