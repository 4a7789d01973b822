"""The rules for one key, on handmade histories, and compared with a simple implementation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark_jobs.rules import Line
from anabranch.spark_jobs.verdict import (
    BEFORE_GATE,
    DELIVERED,
    LATE,
    LOST,
    OUT_OF_ORDER,
    REDELIVERED,
    REPEATED,
    Event,
    Violation,
)

Spot = tuple[int, int, int]
"""(sequence, partition, offset) of a delivery."""


def event(spot: Spot, *, generation: int = 0, time_ms: int = 0, incarnation: int = 1) -> Event:
    sequence, partition, offset = spot
    return Event("g", "t", 7, b"k", sequence, partition, offset, generation, time_ms, 0, "m", incarnation, 1)


def judged(*spots: Spot) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """How often each kind was counted, and (kind, sequence) of the violations."""
    return judge_events([event(spot) for spot in spots])


def judge_events(events: Sequence[Event]) -> tuple[dict[str, int], list[tuple[str, int]]]:
    line, counts, found = Line(), dict[str, int](), []
    for one in events:
        finding = line.judge(one, late=False, clock_ms=one.time_ms, timeout_ms=1000)
        for kind in finding.counts:
            counts[kind] = counts.get(kind, 0) + 1
        found += [(violation.kind, _number(violation)) for violation in finding.violations]
    if line.skipped:
        counts[LOST] = sum(skip.last - skip.first + 1 for skip in line.skipped)
    return counts, found


def _number(violation: Violation) -> int:
    return violation.sequences[0][0] if violation.event is None else violation.event.sequence


def test_key_moving_through_partitions_in_order_violates_nothing() -> None:
    assert judged((0, 1, 10), (1, 1, 11), (2, 5, 0), (3, 5, 1), (4, 1, 12)) == ({DELIVERED: 5}, [])


def test_records_of_newest_partition_may_be_redelivered_repeatedly() -> None:
    counts, found = judged((0, 1, 10), (1, 1, 11), (0, 1, 10), (0, 1, 10), (1, 1, 11), (2, 1, 12))
    assert (counts, found) == ({DELIVERED: 3, REDELIVERED: 3}, [])


def test_redelivery_from_a_former_partition_of_the_key_is_out_of_order() -> None:
    counts, found = judged((0, 1, 10), (1, 1, 11), (2, 5, 0), (1, 1, 11))
    assert (counts, found) == ({DELIVERED: 3, OUT_OF_ORDER: 1}, [(OUT_OF_ORDER, 1)])


def test_overtaken_record_is_out_of_order() -> None:
    assert judged((0, 1, 10), (2, 5, 0), (1, 1, 11), (3, 5, 1))[1] == [(OUT_OF_ORDER, 1)]
    assert judged((0, 1, 10), (2, 1, 12), (1, 1, 11))[1] == [(OUT_OF_ORDER, 1)]


def test_record_of_newer_key_epoch_that_overtakes_came_before_its_gate() -> None:
    events = [event((0, 1, 10)), event((2, 5, 0), generation=1), event((1, 1, 11))]
    assert judge_events(events)[1] == [(BEFORE_GATE, 1)]


def test_skipped_records_are_lost() -> None:
    assert judged((0, 1, 10), (3, 1, 13)) == ({DELIVERED: 2, LOST: 2}, [])
    assert judged((2, 1, 12)) == ({DELIVERED: 1, LOST: 2}, [])


def test_record_stored_twice_is_repeated_in_any_partition() -> None:
    assert judged((0, 1, 10), (1, 1, 11), (1, 1, 12)) == ({DELIVERED: 2, REPEATED: 1}, [(REPEATED, 1)])
    assert judged((0, 1, 10), (1, 1, 11), (1, 5, 0)) == ({DELIVERED: 2, REPEATED: 1}, [(REPEATED, 1)])


def test_earlier_event_of_former_member_is_late_and_no_violation() -> None:
    later = event((1, 5, 0), generation=1, time_ms=50, incarnation=2)
    before = event((0, 1, 10), time_ms=10)
    counts, found = judge_events([before, later, before._replace(time_ms=20), before._replace(time_ms=60)])
    assert (counts, found) == ({DELIVERED: 2, LATE: 1, OUT_OF_ORDER: 1}, [(OUT_OF_ORDER, 0)])


def test_member_of_later_generation_has_no_late_events() -> None:
    """Even if its clock is late: out-of-order and repeated deliveries are reported."""
    later = event((1, 5, 0), generation=1, time_ms=50, incarnation=2)
    behind = event((0, 1, 10), time_ms=20, incarnation=3)._replace(group_generation=2)
    counts, found = judge_events([behind, later, behind])
    assert (counts, found) == ({DELIVERED: 2, OUT_OF_ORDER: 1}, [(OUT_OF_ORDER, 0)])
    passed_over = judge_events([event((1, 1, 11), time_ms=50), behind])
    assert passed_over == ({DELIVERED: 2, OUT_OF_ORDER: 1}, [(OUT_OF_ORDER, 0)])
    again = judge_events([event((0, 1, 10), time_ms=50), behind])
    assert again == ({DELIVERED: 1, REDELIVERED: 1}, [])


def test_violation_has_the_delivery_before_it() -> None:
    line = Line()
    for spot in ((0, 1, 10), (2, 5, 0)):
        line.judge(event(spot), late=False, clock_ms=0, timeout_ms=1)
    [violation] = line.judge(event((1, 1, 11)), late=False, clock_ms=0, timeout_ms=1).violations
    assert (violation.event, violation.before) == (event((1, 1, 11)), event((2, 5, 0)))


def test_skipped_record_is_lost_once_after_its_timeout() -> None:
    line = Line()
    line.judge(event((0, 1, 10)), late=False, clock_ms=0, timeout_ms=1000)
    line.judge(event((3, 1, 13), time_ms=5), late=False, clock_ms=5, timeout_ms=1000)
    assert list(line.find_lost(1004, 1000)) == []
    assert [one.sequences for one in line.find_lost(1005, 1000)] == [((1, 2),)]
    assert list(line.find_lost(9999, 1000)) == []


def test_loss_has_the_deliveries_around_it() -> None:
    line = Line()
    around = event((0, 1, 10)), event((3, 1, 13), time_ms=5)
    for one in around:
        line.judge(one, late=False, clock_ms=one.time_ms, timeout_ms=1000)
    [violation] = line.find_lost(2000, 1000)
    assert (violation.before, violation.after) == around
    first = Line()
    first.judge(event((3, 1, 13)), late=False, clock_ms=0, timeout_ms=1000)
    assert [one.before for one in first.find_lost(2000, 1000)] == [None]


def test_record_that_arrives_after_its_timeout_was_lost_and_is_out_of_order() -> None:
    events = [event((0, 1, 10)), event((3, 1, 13), time_ms=5), event((2, 1, 12), time_ms=2000)]
    assert judge_events(events)[1] == [(LOST, 1), (OUT_OF_ORDER, 2)]


def test_loss_reported_with_a_late_record_is_not_reported_again() -> None:
    line = Line()
    events = [event((0, 1, 10)), event((4, 1, 14), time_ms=5), event((2, 1, 12), time_ms=2000)]
    reported = [line.judge(one, late=False, clock_ms=one.time_ms, timeout_ms=1000).violations for one in events]
    assert [violation.sequences for violation in reported[2] if violation.kind == LOST] == [((1, 3),)]
    assert [(skip.first, skip.last) for skip in line.skipped] == [(1, 1), (3, 3)]
    assert list(line.find_lost(9999, 1000)) == []


def test_keys_without_numbers_follow_generations_then_offsets() -> None:
    def blank(partition: int, offset: int, generation: int) -> Event:
        return event((-1, partition, offset), generation=generation)

    path = [blank(1, 10, 0), blank(1, 12, 0), blank(5, 0, 1)]
    assert judge_events(path) == ({DELIVERED: 3}, [])
    assert judge_events([*path, blank(5, 0, 1)])[0][REDELIVERED] == 1
    assert judge_events([*path, blank(1, 13, 0)])[1] == [(BEFORE_GATE, -1)]
    assert judge_events([*path, blank(1, 10, 0)])[1] == [(OUT_OF_ORDER, -1)]


def test_without_numbers_and_lineage_each_partition_is_judged_separately() -> None:
    spots = [(-1, 1, 10), (-1, 2, 3), (-1, 1, 11), (-1, 2, 4)]
    assert judge_events([event(spot, generation=-1) for spot in spots]) == ({DELIVERED: 4}, [])


# against a slow and obvious checker


def obvious(spots: Sequence[Spot]) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """The same, by looking at the whole history again and again."""
    counts = dict.fromkeys((DELIVERED, REDELIVERED, OUT_OF_ORDER, REPEATED, LOST), 0)
    violations = []
    for number, (sequence, partition, offset) in enumerate(spots):
        before = spots[:number]
        seen = {one for one, _, _ in before}
        # the first delivery of the highest sequence so far is the newest
        newest = max(before, key=lambda spot: spot[0], default=(-1, -1, -1))
        kind = None
        if sequence not in seen:
            counts[DELIVERED] += 1
            if sequence < newest[0]:
                kind = OUT_OF_ORDER
        elif not any(offset <= its_offset for _, its_partition, its_offset in before if its_partition == partition):
            kind = REPEATED
        elif newest[1] == partition:
            counts[REDELIVERED] += 1
        else:
            kind = OUT_OF_ORDER
        if kind:
            counts[kind] += 1
            violations.append((kind, sequence))
    seen = {sequence for sequence, _, _ in spots}
    counts[LOST] = len(set(range(max(seen, default=-1))) - seen)
    return {name: count for name, count in counts.items() if count}, violations


@st.composite
def stories(draw: st.DrawFn) -> list[Spot]:
    """A key that moves through partitions and is read with crashes, skips, swaps and records stored twice."""
    length = draw(st.integers(0, 12))
    moves = draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    log: list[Spot] = []
    ends = itertools.count()
    for sequence in range(length):
        log.append((sequence, moves[sequence], next(ends)))
        if draw(st.integers(0, 9)) == 0:
            log.append((sequence, draw(st.integers(0, 2)), next(ends)))
    read: list[Spot] = []
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


@given(stories())
def test_rules_agree_with_reference_implementation(spots: list[Spot]) -> None:
    # a key epoch that is not known (generation -1) keeps generations out of it
    assert judge_events([event(spot, generation=-1) for spot in spots]) == obvious(spots)
