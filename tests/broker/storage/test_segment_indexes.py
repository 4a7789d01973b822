"""The indexes of a segment, without files: entries, the latest timestamp, and the same state after a truncation."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from anabranch.broker.storage.segment_indexes import SegmentIndexes, proven_end

BASE = 1000
INTERVAL = 300
FIRST_MS = 50


class Batch(NamedTuple):
    last_offset: int
    position: int
    size_bytes: int
    max_timestamp_ms: int


def batches() -> list[Batch]:
    """Forty batches of different sizes, whose timestamps do not always increase."""
    found: list[Batch] = []
    offset, position = BASE, 0
    for number in range(40):
        records, size_bytes = 1 + number % 4, 70 + 13 * (number % 7)
        found.append(Batch(offset + records - 1, position, size_bytes, FIRST_MS + 10 * number - 70 * (number % 4 == 3)))
        offset += records
        position += size_bytes
    return found


BATCHES = batches()


def indexes_of(known: list[Batch]) -> SegmentIndexes:
    indexes = SegmentIndexes(BASE)
    for one in known:
        indexes.add(*one, INTERVAL)
    return indexes


def state_of(indexes: SegmentIndexes) -> tuple[object, ...]:
    return (
        (indexes.offsets.to_bytes(), indexes.bytes_since_entry),
        (indexes.first_timestamp_ms, indexes.max_timestamp_ms, indexes.max_timestamp_offset),
    )


def test_entry_is_added_after_the_interval() -> None:
    indexes = SegmentIndexes(BASE)
    for number in range(9):
        indexes.add(BASE + number, 100 * number, 100, -1, INTERVAL)
        assert len(indexes.offsets) == number // 4, "the fourth has exactly 300 bytes before it"
    assert [indexes.offsets.position_before(BASE + offset) for offset in (3, 4, 7, 8)] == [0, 400, 400, 800]


def test_latest_and_first_timestamps_are_kept() -> None:
    indexes = indexes_of(BATCHES)
    latest = max(BATCHES, key=lambda one: one.max_timestamp_ms)
    assert latest is not BATCHES[-1]
    assert (indexes.max_timestamp_ms, indexes.max_timestamp_offset) == (latest.max_timestamp_ms, latest.last_offset)
    assert indexes.first_timestamp_ms == FIRST_MS


@pytest.mark.parametrize("count", range(1, 40))
def test_truncated_indexes_equal_those_of_the_remaining_batches(count: int) -> None:
    indexes = indexes_of(BATCHES)
    cut, kept = BATCHES[count], BATCHES[:count]
    indexes.truncate(cut.position, kept[-1].last_offset + 1)
    for one in kept:
        if one.position >= indexes.offsets.last_position:
            indexes.add_timestamp(one.max_timestamp_ms, one.last_offset)
    remaining = indexes_of(kept)
    assert state_of(indexes) == state_of(remaining)
    assert indexes.times.to_bytes().startswith(remaining.times.to_bytes())
    assert indexes.times.end <= kept[-1].last_offset + 1, "an entry of a removed batch may name an earlier one"


def test_decoded_indexes_have_the_entries_and_the_latest_timestamp() -> None:
    indexes = indexes_of(BATCHES)
    indexes.times.append(indexes.max_timestamp_ms, indexes.max_timestamp_offset)  # as `Segment.seal` does
    offsets, times = indexes.offsets.to_bytes(), indexes.times.to_bytes()
    again = SegmentIndexes.decode(BASE, offsets, times)
    assert (again.offsets.to_bytes(), again.times.to_bytes(), again.end) == (offsets, times, indexes.end)
    assert again.max_timestamp_ms == indexes.max_timestamp_ms
    assert again.max_timestamp_offset == indexes.max_timestamp_offset
    for damaged in ((None, times), (offsets, None), (offsets[:-1], times), (offsets, times[:-1])):
        with pytest.raises(ValueError, match="index"):
            SegmentIndexes.decode(BASE, *damaged)


def test_index_files_prove_an_end_up_to_the_next_segment() -> None:
    indexes = indexes_of(BATCHES)
    offsets, times = indexes.offsets.to_bytes(), indexes.times.to_bytes()
    ends = indexes.offsets.end, indexes.times.end
    assert ends[0] > ends[1] > BASE
    assert proven_end(BASE, offsets, times, 2000) == ends[0]
    assert proven_end(BASE, offsets, times, ends[0] - 1) == ends[1], "the other one is damaged"
    assert proven_end(BASE, offsets[:-1], times, 2000) == proven_end(BASE, None, times, 2000) == ends[1]
    assert proven_end(BASE, None, None, 2000) == BASE
