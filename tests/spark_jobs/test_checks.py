"""The rules of the order audit, on histories made by hand and at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs import checks
from spark_jobs.checks import COUNTERS, OUT_OF_ORDER, REPEATED, Bucket, Event, Gaps, StoredState

Place = tuple[int, int, int]
"""(sequence, partition, offset) of a delivery."""


def event(place: Place, *, key: bytes = b"k", group: str = "g", topic: str = "t", generation: int = 0) -> Event:
    sequence, partition, offset = place
    return Event(group, 7, key, sequence, topic, partition, offset, generation, "member", 1, 0)


def judged(*places: Place) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """Counters that are not zero, and (kind, sequence) of the violations."""
    bucket = Bucket()
    violations = bucket.check(event(place) for place in places)
    counted = {name: count for name, count in bucket.counts.items() if count and name not in ("events", "keys")}
    return counted, [(one.kind, one.event.sequence) for one in violations]


def test_a_key_that_moves_through_partitions_in_order_violates_nothing() -> None:
    assert judged((0, 1, 10), (1, 1, 11), (2, 5, 0), (3, 5, 1), (4, 1, 12)) == ({"delivered": 5}, [])


def test_a_stretch_of_the_newest_partition_may_be_delivered_again() -> None:
    assert judged((0, 1, 10), (1, 1, 11), (2, 1, 12), (1, 1, 11), (2, 1, 12), (3, 1, 13)) == (
        {"delivered": 4, "redelivered": 2},
        [],
    )


def test_a_stretch_of_the_newest_partition_may_be_delivered_again_and_again() -> None:
    assert judged((0, 1, 10), (1, 1, 11), (0, 1, 10), (0, 1, 10), (1, 1, 11))[0] == {"delivered": 2, "redelivered": 3}


def test_redelivery_from_a_partition_that_the_key_has_left_goes_back_in_time() -> None:
    assert judged((0, 1, 10), (1, 1, 11), (2, 5, 0), (1, 1, 11)) == (
        {"delivered": 3, "out_of_order": 1},
        [(OUT_OF_ORDER, 1)],
    )


def test_a_record_that_overtakes_makes_the_overtaken_one_out_of_order() -> None:
    assert judged((0, 1, 10), (2, 5, 0), (1, 1, 11), (3, 5, 1)) == (
        {"delivered": 4, "out_of_order": 1},
        [(OUT_OF_ORDER, 1)],
    )


def test_a_late_record_is_out_of_order_even_if_it_comes_from_the_newest_partition() -> None:
    assert judged((0, 1, 10), (2, 1, 12), (1, 1, 11)) == ({"delivered": 3, "out_of_order": 1}, [(OUT_OF_ORDER, 1)])


def test_what_is_skipped_is_missing() -> None:
    assert judged((0, 1, 10), (3, 1, 13)) == ({"delivered": 2, "missing": 2}, [])


def test_a_key_that_does_not_begin_at_its_beginning_misses_it() -> None:
    assert judged((2, 1, 12)) == ({"delivered": 1, "missing": 2}, [])


def test_a_record_stored_twice_is_repeated_in_whichever_partition() -> None:
    assert judged((0, 1, 10), (1, 1, 11), (1, 1, 12)) == ({"delivered": 2, "repeated": 1}, [(REPEATED, 1)])
    assert judged((0, 1, 10), (1, 1, 11), (1, 5, 0)) == ({"delivered": 2, "repeated": 1}, [(REPEATED, 1)])


def test_a_violation_knows_what_was_delivered_before() -> None:
    bucket = Bucket()
    [violation] = bucket.check([event((0, 1, 10)), event((2, 5, 0)), event((1, 1, 11))])
    assert violation.event == event((1, 1, 11))
    assert violation.before == event((2, 5, 0))


def test_keys_groups_topics_and_producers_are_judged_apart() -> None:
    bucket = Bucket()
    same = event((0, 1, 10))
    others = [same._replace(key=b"l"), same._replace(group="h"), same._replace(topic="u"), same._replace(producer=8)]
    assert bucket.check([same, *others]) == []
    assert bucket.counts["keys"] == bucket.counts["delivered"] == 5


def test_records_without_a_number_are_counted_and_not_judged() -> None:
    bucket = Bucket()
    blank = event((5, 1, 10))._replace(producer=0)
    assert bucket.check([blank, blank]) == []
    assert (bucket.counts["unnumbered"], bucket.counts["delivered"], bucket.counts["missing"]) == (2, 0, 0)


def test_deliveries_are_counted_by_generation() -> None:
    bucket = Bucket()
    bucket.check([event((0, 1, 0)), event((1, 1, 1), generation=2), event((1, 1, 1), generation=2)])
    assert bucket.by_generation == {0: 1, 2: 1}


def test_stored_and_never_delivered_is_lost_per_group() -> None:
    bucket = Bucket()
    bucket.store((7, key, sequence) for key in (b"k", b"l") for sequence in range(3))
    bucket.check([event((0, 1, 0)), event((0, 1, 0), group="h"), event((1, 1, 1), group="h")])
    assert bucket.undelivered("t") == {"g": 2 + 3, "h": 1 + 3}
    assert {(loss.group, loss.key, tuple(loss.sequences)) for loss in bucket.losses("t", ["g", "h"])} == {
        ("g", b"k", ((1, 2),)),
        ("g", b"l", ((0, 2),)),
        ("h", b"k", ((2, 2),)),
        ("h", b"l", ((0, 2),)),
    }


def test_what_is_delivered_is_not_lost_whichever_is_seen_first() -> None:
    bucket = Bucket()
    bucket.check([event((0, 1, 0)), event((1, 1, 1))])
    assert bucket.undelivered("t") == {"g": 0}
    bucket.store([(7, b"k", 1), (7, b"k", 0)])
    assert bucket.undelivered("t") == {"g": 0}
    assert list(bucket.losses("t", ["g"])) == []


def test_a_record_missing_in_the_middle_is_lost_once_although_it_is_stored() -> None:
    bucket = Bucket()
    bucket.store((7, b"k", sequence) for sequence in range(4))
    bucket.check([event((0, 1, 0)), event((2, 1, 2))])
    assert verdict_of(bucket)["lost"] == 2
    assert [loss.sequences for loss in bucket.losses("t", ["g"])] == [[(1, 1)], [(3, 3)]]


def test_a_bucket_that_a_group_got_nothing_from_counts_as_lost_for_it() -> None:
    reached, unreached = Bucket(), Bucket()
    reached.store([(7, b"k", 0)])
    reached.check([event((0, 1, 0))])
    unreached.store([(7, b"l", 0), (7, b"l", 1), (7, b"l", 1)])
    assert verdict_of(reached, unreached)["lost"] == 2
    assert verdict_of(unreached)["lost"] == 2, "also when there is no group at all"


def test_what_is_stored_twice_is_repeated_although_nobody_got_it() -> None:
    bucket = Bucket()
    bucket.store([(7, b"k", 0), (7, b"k", 1), (7, b"k", 0)])
    assert verdict_of(bucket)["repeated"] == 1


@pytest.mark.parametrize("name", ["out_of_order", "lost", "repeated"])
def test_any_violation_makes_a_verdict_unclean(name: str) -> None:
    good = checks.verdict(checks.total([]))
    assert checks.clean(good)
    assert checks.clean({**good, "redelivered": 1, "unnumbered": 1})
    assert not checks.clean({**good, name: 1})


def test_late_starts_cost_no_memory() -> None:
    bucket = Bucket()
    bucket.check([event((10**15, 1, 5))])
    assert bucket.counts["missing"] == 10**15
    assert len(bucket.pack()) < 1000


@given(st.lists(st.integers(1, 4), max_size=12), st.randoms())
def test_gaps_are_a_set_of_numbers(widths: list[int], rng: random.Random) -> None:
    gaps, model, position = Gaps(), set[int](), 0
    for width in widths:
        gaps.append(position, position + width - 1)
        model.update(range(position, position + width))
        position += width + 1
    for _ in range(3 * len(widths)):
        number = rng.randrange(-1, position + 2)
        assert gaps.remove(number) == (number in model)
        model.discard(number)
        assert len(gaps) == len(model)
        assert [one for first, last in gaps.spans for one in range(first, last + 1)] == sorted(model)


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(-1, 14))
def test_what_lies_beyond_is_what_was_stored_there(sequences: list[int], after: int) -> None:
    bucket = Bucket()
    bucket.store((7, b"k", sequence) for sequence in sequences)
    state = bucket.stored.get((7, b"k"), StoredState())
    beyond = [one for first, last in state.beyond(after) for one in range(first, last + 1)]
    assert beyond == sorted({one for one in sequences if one > after})
    assert bucket.counts["stored_again"] == len(sequences) - len(set(sequences))


# against a slow and obvious checker


def obvious(places: Sequence[Place]) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """The rules of `checks`, by looking at the whole history of one key again and again."""
    counts = dict.fromkeys(("delivered", "redelivered", "out_of_order", "repeated", "missing"), 0)
    violations = []
    for number, (sequence, partition, offset) in enumerate(places):
        before = places[:number]
        seen = {one for one, _, _ in before}
        # the first delivery of the highest sequence so far is the newest
        newest = max(before, key=lambda place: place[0], default=(-1, -1, -1))
        kind = None
        if sequence not in seen:
            counts["delivered"] += 1
            if sequence < newest[0]:
                kind = OUT_OF_ORDER
        elif not any(offset <= its_offset for _, its_partition, its_offset in before if its_partition == partition):
            kind = REPEATED
        elif newest[1] == partition:
            counts["redelivered"] += 1
        else:
            kind = OUT_OF_ORDER
        if kind:
            counts[kind] += 1
            violations.append((kind, sequence))
    seen = {sequence for sequence, _, _ in places}
    counts["missing"] = len(set(range(max(seen, default=-1))) - seen)
    return {name: count for name, count in counts.items() if count}, violations


@st.composite
def histories(draw: st.DrawFn) -> list[Place]:
    """A key that moves through partitions and is read with crashes, skips, swaps and records stored twice."""
    length = draw(st.integers(0, 12))
    moves = draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    log: list[Place] = []
    ends = itertools.count()
    for sequence in range(length):
        log.append((sequence, moves[sequence], next(ends)))
        if draw(st.integers(0, 9)) == 0:
            log.append((sequence, draw(st.integers(0, 2)), next(ends)))
    read: list[Place] = []
    position = 0
    while position < len(log):
        read.append(log[position])
        position += 1
        match draw(st.sampled_from(["on", "on", "on", "crash", "skip", "swap"])):
            case "crash" if len(read) < 40:
                position = max(0, position - draw(st.integers(1, 4)))
            case "skip":
                position += 1
            case "swap" if len(read) > 1:
                read[-1], read[-2] = read[-2], read[-1]
    return read


@given(histories())
def test_the_checker_agrees_with_the_obvious_one(places: list[Place]) -> None:
    assert judged(*places) == obvious(places)


@given(histories(), st.data())
def test_packing_in_the_middle_changes_nothing(places: list[Place], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(places)))
    whole = Bucket()
    expected = whole.check(map(event, places))
    whole.store((7, b"k", sequence) for sequence, _, _ in places)
    first = Bucket()
    found = first.check(map(event, places[:cut]))
    first.store((7, b"k", sequence) for sequence, _, _ in places[:cut])
    second = Bucket.unpack(first.pack())
    found += second.check(map(event, places[cut:]))
    second.store((7, b"k", sequence) for sequence, _, _ in places[cut:])
    assert found == expected
    assert verdict_of(second) == verdict_of(whole)
    assert second.by_generation == whole.by_generation


def verdict_of(*buckets: Bucket) -> dict[str, int]:
    rows = [{**bucket.counts, "undelivered": bucket.undelivered("t")} for bucket in buckets]
    assert all(set(COUNTERS) <= set(row) for row in rows)
    return checks.verdict(checks.total(rows))
