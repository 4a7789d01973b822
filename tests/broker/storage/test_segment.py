from __future__ import annotations

import dataclasses

import pytest

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.broker.storage.segment import Segment, segment_path
from anabranch.protocol.records.batch import iter_batches, read_header
from tests.broker.storage.batches import NOW_MS, batch

BATCHES = 40
INTERVAL = 300  # about every third batch gets an index entry


def filled(files: Files, *, base_offset: int = 1000, gap: int = 0) -> Segment:
    """Batches of one to four records; `gap` offsets between them are missing, as compaction leaves them."""
    files.make_directory("t-0")
    segment = Segment(files, "t-0", base_offset, NOW_MS)
    offset = base_offset
    for number in range(BATCHES):
        records = 1 + number % 4
        data = batch(records, timestamp_ms=NOW_MS + number * 10, at=(offset, 1), value=b"v" * (number % 7))
        segment.append(
            data,
            last_offset=offset + records - 1,
            size_bytes=len(data),
            max_timestamp_ms=read_header(data).max_timestamp,
            index_interval_bytes=INTERVAL,
        )
        offset += records + gap
    return segment


def layout(segment: Segment) -> list[tuple[int, int, int]]:
    return [(position, header.base_offset, header.last_offset) for position, header in segment.headers()]


@pytest.mark.parametrize("gap", [0, 3])
def test_position_of_every_offset_is_found(files: Files, gap: int) -> None:
    segment = filled(files, gap=gap)
    batches = layout(segment)
    assert len(batches) == BATCHES
    for forget in (False, True):  # with the remembered boundaries, and by index and walk alone
        for offset in range(995, batches[-1][2] + 5):
            if forget:
                segment._boundaries.clear()
            expected = next((position for position, _, last in batches if last >= offset), segment.file.size_bytes)
            assert segment.position_of(offset) == expected


def test_reads_return_whole_batches_below_the_limit(files: Files) -> None:
    segment = filled(files)
    batches = layout(segment)
    content = segment.file.read(0, segment.file.size_bytes)
    for offset in range(1000, batches[-1][2] + 1):
        start = next(position for position, _, last in batches if last >= offset)
        for limit in (offset + 1, offset + 7, batches[-1][2] + 1):
            stop = next((position for position, _, last in batches if last >= limit), segment.file.size_bytes)
            for max_bytes in (0, 1, 70, 100, 500, 100_000):
                data = segment.read(offset, max_bytes, stop=stop, stop_offset=limit, min_one_batch=False)
                fitting = [p for p, _, _ in [*batches, (segment.file.size_bytes, 0, 0)] if p <= start + max_bytes]
                assert data == content[start : max(start, min(stop, fitting[-1]))]
                generous = segment.read(offset, max_bytes, stop=stop, stop_offset=limit, min_one_batch=True)
                first = read_header(content, start).size_bytes if start < stop else 0
                assert generous == (data or content[start : start + first])


def test_sequential_read_needs_no_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    segment = filled(MemoryFiles())
    segment._boundaries.clear()

    def walk(*_: object) -> int:
        raise AssertionError("walked")

    monkeypatch.setattr(Segment, "_walk", walk)
    offset, seen = 1000, 0
    while offset < 1100:
        data = segment.read(offset, 400, stop=segment.file.size_bytes, stop_offset=1100, min_one_batch=True)
        headers = [header for _, header in iter_batches(data)]
        offset, seen = headers[-1].next_offset, seen + len(headers)
    assert seen == BATCHES


def test_recovery_rebuilds_the_indexes(files: Files) -> None:
    segment = filled(files)
    again = Segment(files, "t-0", 1000, NOW_MS)
    headers = [header for _, header in again.recover(index_interval_bytes=INTERVAL)]
    assert len(headers) == BATCHES
    assert again.file.size_bytes == segment.file.size_bytes
    assert again.indexes.offsets.to_bytes() == segment.indexes.offsets.to_bytes()
    assert again.indexes.times.to_bytes() == segment.indexes.times.to_bytes()
    assert again.indexes.first_timestamp_ms == segment.indexes.first_timestamp_ms
    assert again.indexes.max_timestamp_ms == segment.indexes.max_timestamp_ms
    assert again.indexes.max_timestamp_offset == segment.indexes.max_timestamp_offset


@pytest.mark.parametrize("kept", [0, 1, 17, BATCHES - 1])
def test_truncated_segment_has_the_indexes_of_the_batches_left(files: Files, kept: int) -> None:
    segment = filled(files)
    position, offset, _ = layout(segment)[kept]
    segment.truncate(position, offset)
    again = Segment(files, "t-0", 1000, NOW_MS)
    assert len(list(again.recover(index_interval_bytes=INTERVAL))) == kept
    assert segment.indexes.offsets.to_bytes() == again.indexes.offsets.to_bytes()
    assert segment.indexes.times.to_bytes() == again.indexes.times.to_bytes()
    assert segment.indexes.first_timestamp_ms == again.indexes.first_timestamp_ms
    assert segment.indexes.max_timestamp_ms == again.indexes.max_timestamp_ms


def test_non_increasing_offsets_are_truncated(files: Files) -> None:
    segment = filled(files)
    whole = segment.file.size_bytes
    segment.file.append(batch(1, at=(segment.base_offset + 5, 1)))
    again = Segment(files, "t-0", 1000, NOW_MS)
    assert len(list(again.recover(index_interval_bytes=INTERVAL))) == BATCHES
    assert again.file.size_bytes == whole


def test_seal_writes_the_indexes(files: Files) -> None:
    segment = filled(files)
    segment.seal()
    assert files.names("t-0") == [f"{1000:020d}.{suffix}" for suffix in ("index", "log", "timeindex", "txnindex")]
    assert files.read_file(segment_path("t-0", 1000, "index")) == segment.indexes.offsets.to_bytes()
    times = files.read_file(segment_path("t-0", 1000, "timeindex"))
    assert times is not None
    assert int.from_bytes(times[-12:-4]) == segment.indexes.max_timestamp_ms, "the last entry covers the whole segment"
    segment.delete()
    assert files.names("t-0") == []


def test_segment_is_full_by_size_or_age() -> None:
    files = MemoryFiles()
    files.make_directory("t-0")
    segment = Segment(files, "t-0", 1000, NOW_MS)
    nothing = LogSettings(segment_bytes=10, segment_index_bytes=0, segment_ms=0)
    assert not segment.is_full(1000 + 2**31 - 1, 5000, NOW_MS + 1, nothing, NOW_MS + 1), "an empty one takes any size"
    assert segment.is_full(1000 + 2**31, 5000, NOW_MS + 1, nothing, NOW_MS + 1), "but no offset that no index can hold"
    segment = filled(MemoryFiles())
    size = segment.file.size_bytes
    room = LogSettings(segment_bytes=size + 100, segment_index_bytes=10_000, segment_ms=5000)
    assert not segment.is_full(2000, 100, NOW_MS, room, NOW_MS)
    assert segment.is_full(2000, 101, NOW_MS, room, NOW_MS)
    assert not segment.is_full(1000 + 2**31 - 1, 100, NOW_MS, room, NOW_MS)
    assert segment.is_full(1000 + 2**31, 100, NOW_MS, room, NOW_MS)
    index_bytes = 8 * len(segment.indexes.offsets)
    assert not segment.is_full(
        2000, 100, NOW_MS, dataclasses.replace(room, segment_index_bytes=index_bytes + 1), NOW_MS
    )
    assert segment.is_full(2000, 100, NOW_MS, dataclasses.replace(room, segment_index_bytes=index_bytes), NOW_MS)
    assert not segment.is_full(2000, 100, NOW_MS + 5000, room, NOW_MS + 9000), "the clock of the records counts"
    assert segment.is_full(2000, 100, NOW_MS + 5001, room, NOW_MS)
    assert not segment.is_full(2000, 100, -1, room, NOW_MS + 5000), "ours, where they have none"
    assert segment.is_full(2000, 100, -1, room, NOW_MS + 5001)


def test_damaged_index_that_names_a_later_batch_skips_none(files: Files) -> None:
    """With a lower offset in an entry, readers would continue behind the batches before its position."""
    segment = filled(files)
    batches = layout(segment)
    index = segment.indexes.offsets
    index._relative_offsets[5] = index._relative_offsets[4] + 1
    segment._boundaries.clear()
    for position, first, last in batches:
        for offset in (first, last):
            assert segment.position_of(offset) == position
