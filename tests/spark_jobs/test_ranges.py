"""Bounds, content and splits of batches, and lost records, without Spark or a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark_jobs.ranges import OffsetRange, admit, losses, ranges, split
from anabranch.spark_jobs.source_options import Offsets

Backlogs = st.dictionaries(
    st.sampled_from(["t", "u"]), st.dictionaries(st.sampled_from("0123"), st.integers(0, 50), max_size=4), max_size=2
)


def rows_between(start: Offsets, end: Offsets) -> int:
    return sum(one.records for one in ranges(start, end))


@given(start=Backlogs, backlog=Backlogs, limit=st.none() | st.integers(1, 60))
def test_batch_is_limited_and_offsets_never_decrease(start: Offsets, backlog: Offsets, limit: int | None) -> None:
    latest = {
        topic: {index: start.get(topic, {}).get(index, 0) + count for index, count in partitions.items()}
        for topic, partitions in backlog.items()
    }
    waiting = sum(count for partitions in backlog.values() for count in partitions.values())
    end = admit(start, latest, limit)
    assert rows_between(start, end) == (waiting if limit is None else min(limit, waiting))
    for topic, partitions in start.items():
        for index, offset in partitions.items():
            assert offset <= end[topic][index]
    for one in ranges(start, end):
        assert one.end <= latest[one.topic][str(one.partition)]


def test_limit_is_shared_by_backlog() -> None:
    end = admit({"t": {"0": 0, "1": 0}}, {"t": {"0": 900, "1": 100}}, 100)
    assert end == {"t": {"0": 90, "1": 10}}


def test_truncated_log_does_not_move_offset_back() -> None:
    assert admit({"t": {"0": 10}}, {"t": {"0": 4}}, None) == {"t": {"0": 10}}


def test_removed_partition_keeps_its_offset() -> None:
    assert admit({"t": {"0": 5, "7": 3}}, {"t": {"0": 6}}, 10) == {"t": {"0": 6, "7": 3}}


def test_new_partition_is_read_from_its_beginning() -> None:
    assert [(one.partition, one.start, one.end) for one in ranges({"t": {"0": 5}}, {"t": {"0": 5, "1": 4}})] == [
        (1, 0, 4)
    ]


def test_partition_index_new_to_query_starts_at_its_log_start() -> None:
    start, latest, earliest = {"t": {"0": 5}}, {"t": {"0": 5, "1": 140}}, {"t": {"0": 0, "1": 100}}
    assert admit(start, latest, 10, earliest) == {"t": {"0": 5, "1": 110}}
    assert ranges(start, {"t": {"0": 5, "1": 110}}, earliest) == [OffsetRange("t", 1, 100, 110)]
    # Nothing of it fits into this batch, and it must not count as lost in the next.
    busy = admit({"t": {"0": 5}}, {"t": {"0": 1_000_000, "1": 101}}, 1, earliest)
    assert busy["t"]["1"] in (100, 101)
    assert losses(busy, earliest, {}) == []


def test_recreated_partition_index_continues_at_its_end() -> None:
    start, latest, earliest = {"t": {"0": 5, "1": 100}}, {"t": {"0": 5, "1": 140}}, {"t": {"0": 0, "1": 100}}
    assert losses(start, earliest, {}) == []
    assert ranges(start, admit(start, latest, None, earliest), earliest) == [OffsetRange("t", 1, 100, 140)]


def test_expired_records_do_not_count_as_backlog() -> None:
    start, earliest = {"t": {"0": 0, "1": 0}}, {"t": {"0": 90, "1": 0}}
    assert admit(start, {"t": {"0": 100, "1": 10}}, 10, earliest) == {"t": {"0": 95, "1": 5}}


@pytest.mark.parametrize(
    ("start", "earliest", "seen", "lost"),
    [
        ({"0": 5}, {"0": 5}, {}, []),
        ({"0": 5}, {"0": 3}, {}, []),
        ({"0": 5}, {"0": 9}, {}, ["t-0 begins at offset 9 now; 5 to 8 were not read"]),
        ({"0": 5}, {}, {}, []),
        ({"0": 5}, {}, {("t", "0"): 5}, []),
        ({"0": 5}, {}, {("t", "0"): 8}, ["t-0 was deleted; its offsets 5 to 7 were not read"]),
    ],
)
def test_unreadable_offsets_are_reported_as_losses(
    start: dict[str, int], earliest: dict[str, int], seen: dict[tuple[str, str], int], lost: list[str]
) -> None:
    assert losses({"t": start}, {"t": earliest}, seen) == lost


spans = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 100)), min_size=1, max_size=5)


@given(spans, st.none() | st.integers(1, 20), st.none() | st.integers(1, 50))
def test_tasks_cover_the_ranges_evenly(
    given_spans: list[tuple[int, int]], parts_min: int | None, records_max: int | None
) -> None:
    whole = [OffsetRange("t", index, start, start + count) for index, (start, count) in enumerate(given_spans)]
    parts = split(whole, parts_min, records_max)
    assert all(part.records > 0 for part in parts)
    covered = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert covered == [(one.partition, offset) for one in whole for offset in range(one.start, one.end)]
    assert len(parts) >= min(parts_min or 1, len(covered))
    assert records_max is None or max(part.records for part in parts) <= records_max
    if records_max is None and (parts_min is None or parts_min <= len(whole)):
        assert parts == whole
