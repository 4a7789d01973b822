"""Every kind of violation in a topic's logs is found, and a sound topic has none."""

from __future__ import annotations

from anabranch.judge.placement import partitions_of
from anabranch.judge.records import Delivery, StoredRecord
from anabranch.judge.stored_order import EPOCH_BACK, LOST, MISPLACED, OUT_OF_ORDER, TWICE, judge_stored
from anabranch.judge.verdict import Verdict

COUNTS = (1, 2, 1)
KEY = next(key for key in (b"%d" % n for n in range(100)) if partitions_of(key, COUNTS) == [0, 1, 0])


def stored(*places: tuple[int, int]) -> list[StoredRecord]:
    """The records of KEY at (partition, offset), numbered from 0."""
    return [StoredRecord(partition, offset, KEY, number) for number, (partition, offset) in enumerate(places)]


def kinds(*records: StoredRecord, **options: object) -> list[str]:
    verdict = Verdict()
    judge_stored(verdict, records, **options)  # type: ignore[arg-type]
    return [one.kind for one in verdict.violations]


def test_records_that_follow_their_key_through_resizes_are_no_violation() -> None:
    records = stored((0, 0), (0, 1), (1, 0), (1, 5), (0, 9))
    assert kinds(*records, counts=COUNTS, sent=[], starts={0: 0, 1: 0}) == []


def test_offsets_that_go_back_within_a_partition_are_out_of_order() -> None:
    assert kinds(*stored((0, 1), (0, 0))) == [OUT_OF_ORDER]


def test_record_at_two_places_is_stored_twice() -> None:
    records = stored((0, 0), (0, 1))
    assert kinds(*records, StoredRecord(1, 0, KEY, 1)) == [TWICE]


def test_record_in_a_partition_of_no_generation_is_misplaced() -> None:
    assert kinds(*stored((0, 0), (7, 0)), counts=COUNTS) == [MISPLACED]


def test_record_in_the_partition_of_an_earlier_generation_is_misplaced() -> None:
    assert kinds(*stored((1, 0), (0, 0), (1, 1)), counts=COUNTS) == [MISPLACED]


def test_acknowledged_record_that_is_missing_is_lost_unless_it_was_deleted() -> None:
    sent = [Delivery(0, 3, KEY, 3)]
    assert kinds(*stored((0, 0)), sent=sent, starts={0: 0}) == [LOST]
    assert kinds(*stored((0, 0)), sent=sent, starts={0: 4}) == []
    assert kinds(*stored((0, 0)), sent=sent, starts={}) == [], "its partition was removed"


def test_acknowledged_record_whose_place_has_another_one_is_lost() -> None:
    sent = [Delivery(0, 0, KEY, 0), Delivery(0, 1, KEY, 1)]
    assert kinds(*stored((0, 0)), StoredRecord(0, 1, b"other", 1), sent=sent, starts={0: 0}) == [LOST]
    assert kinds(StoredRecord(0, 0, KEY, 0), StoredRecord(0, 1, KEY, 2), sent=sent, starts={0: 0}) == [LOST]


def test_records_without_a_key_are_judged_by_partition_alone() -> None:
    def record(partition: int, offset: int, number: int, key: bytes | None = None) -> StoredRecord:
        return StoredRecord(partition, offset, key, number)

    sound = [record(0, 0, 0), record(1, 0, 0), record(0, 1, 1), record(0, 2, 0, b"")]
    assert kinds(*sound, counts=COUNTS) == []
    assert kinds(*sound, record(0, 3, 1)) == [TWICE]
    verdict = Verdict()
    judge_stored(verdict, [record(0, 0, 1), record(0, 1, 0)])
    assert (str(verdict.violations[0]), verdict.keys) == (
        "stored out of order: no key: number 1 at 0@0, 0 at 0@1",
        0,
    )


def test_leader_epoch_that_goes_back_along_a_log_is_found_across_keys() -> None:
    def epoch(offset: int, leader_epoch: int, partition: int = 0) -> StoredRecord:
        return StoredRecord(partition, offset, b"%d" % offset, 0, leader_epoch=leader_epoch)

    assert kinds(epoch(0, 1), epoch(1, 3), epoch(2, 2)) == [EPOCH_BACK]
    assert kinds(epoch(0, 1), epoch(1, 3), epoch(2, -1), epoch(3, 3), epoch(4, 1, partition=1)) == []


def test_producers_number_one_key_independently() -> None:
    numbered = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    both = [StoredRecord(0, offset, KEY, number, who) for offset, (who, number) in enumerate(numbered)]
    assert kinds(*both) == []


def test_records_of_each_key_are_returned_once_and_by_number() -> None:
    first, second = stored((0, 0), (0, 1))
    by_key = judge_stored(Verdict(), [second, first, StoredRecord(0, 2, b"other", 0), StoredRecord(0, 3, KEY, 1)])
    assert by_key == {(KEY, ""): [first, second], (b"other", ""): [StoredRecord(0, 2, b"other", 0)]}
