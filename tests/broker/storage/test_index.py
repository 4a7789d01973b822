from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.storage.index import OffsetIndex, TimeIndex

# batches as (offsets in it, bytes); entries are made for the marked ones
batches = st.lists(st.tuples(st.integers(1, 20), st.integers(61, 5000), st.booleans()), max_size=60)


@given(batches, st.integers(0, 2000))
def test_position_before_is_at_or_before_the_batch_with_the_offset(
    sizes: list[tuple[int, int, bool]], wanted: int
) -> None:
    index = OffsetIndex(1000)
    offset, position, holder = 1000, 0, 0
    starts = {0}
    for count, size, indexed in sizes:
        starts.add(position)
        if offset <= 1000 + wanted:
            holder = position
        if indexed:
            index.append(offset + count - 1, position)
        offset += count
        position += size
    found = index.position_before(1000 + wanted)
    assert found <= holder
    assert found in starts
    for limit in (0, position // 2, position):
        assert index.batch_start_before(limit) <= limit
        assert index.batch_start_before(limit) in starts


def test_nearest_preceding_entry_is_found() -> None:
    index = OffsetIndex(100)
    for offset, position in ((109, 0), (119, 500), (129, 1000)):
        index.append(offset, position)
    assert [index.position_before(offset) for offset in (100, 109, 118, 119, 128, 129, 500)] == [
        0,
        0,
        0,
        500,
        500,
        1000,
        1000,
    ]
    assert [index.batch_start_before(position) for position in (0, 499, 500, 1001)] == [0, 0, 500, 1000]
    index.truncate(500)
    assert len(index) == 1
    assert index.position_before(500) == 0


def test_time_index_keeps_increasing_timestamps_only() -> None:
    index = TimeIndex(100)
    for timestamp, offset in ((10, 105), (10, 107), (8, 109), (20, 111)):
        index.append(timestamp, offset)
    assert len(index) == 2
    # a record as late as 10 can be the one at 105 itself, so the search must not start behind it
    assert [index.offset_before(timestamp) for timestamp in (5, 10, 11, 20, 21)] == [100, 100, 105, 105, 111]
    index.truncate(111)
    assert index.offset_before(99) == 105


def test_encoded_bytes_equal_kafkas() -> None:
    offsets, times = OffsetIndex(100), TimeIndex(100)
    offsets.append(104, 0)
    offsets.append(120, 4500)
    times.append(1_700_000_000_000, 104)
    assert offsets.to_bytes() == struct.pack(">iiii", 4, 0, 20, 4500)
    assert times.to_bytes() == struct.pack(">qi", 1_700_000_000_000, 4)


def test_ends_are_those_of_the_last_entry_or_the_base_offset() -> None:
    offsets, times = OffsetIndex(100), TimeIndex(100)
    assert (offsets.end, offsets.last_position, times.end, times.last) == (100, 0, 100, (-1, 100))
    for offset, position, timestamp in ((104, 0, 10), (120, 4500, 20)):
        offsets.append(offset, position)
        times.append(timestamp, offset)
    assert (offsets.end, offsets.last_position, times.end, times.last) == (121, 4500, 121, (20, 120))
