"""Progress in a partition, compared with a model of records and an index."""

from collections.abc import Sequence
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clients.consumer.consumer_record import NO_GENERATION
from anabranch.clients.consumer.progress import READ_AHEAD, PartitionProgress
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.records.batch import ATTRIBUTES_POSITION, CRC_POSITION
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.crc32c import crc32c
from anabranch.protocol.topic_partition import TopicPartition
from tests.protocol.stored_batch import stored_at

WHERE = TopicPartition("t", 0)


def batch(base: int, values: list[bytes], epoch: int = 0, times_ms: Sequence[int] = ()) -> bytes:
    builder = BatchBuilder()
    for value, timestamp_ms in zip(values, times_ms or repeat(0), strict=False):
        builder.append(None, value, (), timestamp_ms)
    return stored_at(builder.build(), base, epoch)


def progress_at(offset: int = 0) -> PartitionProgress:
    progress = PartitionProgress(WHERE)
    progress.begin(offset)
    return progress


LOGS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=6)
"""(gap before the batch, as compaction leaves; records in the batch)"""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(1, 7)),
        st.tuples(st.just("look"), st.integers(0, 0)),
        st.tuples(st.just("seek"), st.integers(0, 40)),
        st.tuples(st.just("stale"), st.integers(0, 40)),
    ),
    max_size=30,
)


@given(LOGS, STEPS)
def test_records_are_delivered_once_and_in_order(log: list[tuple[int, int]], steps: list[tuple[str, int]]) -> None:
    batches, offset = [], 0
    for gap, count in log:
        offset += gap
        batches.append((offset, count))
        offset += count
    existing = [base + n for base, count in batches for n in range(count)]
    progress, at = progress_at(), 0
    for what, number in steps:
        if what == "fetch":
            wanted = [one for one in batches if one[0] + one[1] > progress.fetch_offset][:number]
            data = b"".join(batch(base, [b"%d" % (base + n) for n in range(count)]) for base, count in wanted)
            assert progress.receive(data, progress.fetch_offset) == len(wanted)
        elif what == "stale" and number != progress.fetch_offset:
            assert progress.receive(batch(number, [b"stale"]), number) == 0
        elif what == "seek":
            progress.seek(number)
            at = number
        elif what == "look" and progress.buffered:
            assert progress.next_timestamp() == 0, "no batch is without records"
        elif what == "take" and progress.buffered:
            taken = progress.take(number)
            assert [record.offset for record in taken] == [one for one in existing if one >= at][: len(taken)]
            assert all(record.value == b"%d" % record.offset for record in taken)
            if taken:
                at = taken[-1].offset + 1
                assert progress.handed_out == at
                assert progress.unflushed
        assert at <= progress.position <= progress.fetch_offset
        assert not [one for one in existing if at <= one < progress.position], "nothing was skipped"
        assert progress.buffered_bytes == sum(one.header.size_bytes for one in progress.buffered)


def test_corrupt_batch_is_refused_and_not_skipped() -> None:
    progress = progress_at()
    data = bytearray(batch(0, [b"a", b"b"]))
    data[-1] ^= 1
    progress.receive(bytes(data), 0)
    for meet in (progress.take, progress.take, progress.next_timestamp):
        with pytest.raises(KafkaError, match="offset 0 is damaged") as refused:
            meet(5)
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert progress.position == 0


def test_partition_is_awaited_while_the_leader_has_more_than_is_fetched() -> None:
    progress = progress_at()
    assert progress.awaited, "nothing is known of it"
    assert progress.note_ends(high_watermark=3, last_stable_offset=2, committed_only=True)
    assert progress.awaited
    progress.receive(batch(0, [b"a", b"b"]), 0)
    assert not progress.awaited, "its next record is here"
    progress.take(2)
    assert not progress.awaited, "the next one is undecided"
    assert not progress.note_ends(high_watermark=3, last_stable_offset=2, committed_only=False)
    assert progress.awaited
    progress.pause()
    assert not progress.awaited


def test_partition_is_processed_when_delivered_records_are_committed() -> None:
    progress = progress_at(5)
    assert progress.processed, "nothing was handed out"
    progress.receive(batch(5, [b"a", b"b"]), 5)
    progress.take(1)
    assert not progress.processed
    progress.committed = 6
    assert progress.processed
    progress.take(1)
    assert not progress.processed
    progress.seek(9)
    assert not progress.processed, "the application's own word: it has to commit it"
    progress.begin(20)
    assert progress.processed


@pytest.mark.parametrize(("offset", "rewound"), [(5, True), (6, False), (7, False)])
def test_only_seek_below_commit_counts_as_rewind(offset: int, rewound: bool) -> None:
    """A seek to the committed offset repeats nothing."""
    progress = progress_at(0)
    progress.note_committed(6)
    progress.seek(offset)
    assert progress.rewound is rewound


def test_r11_seek_clears_announced_flushed_and_crossed_boundaries() -> None:
    progress = progress_at()
    for known in (progress.announced, progress.flushed, progress.crossed):
        known.add(KeyEpoch(0, 0))
    progress.out_of_range = True
    assert progress.must_reset
    assert not progress.fetchable
    progress.seek(3)
    assert not progress.announced | progress.flushed | progress.crossed
    assert progress.fetchable


def test_decoded_records_are_taken_once_in_pieces_of_any_size() -> None:
    values = [b"%d" % number for number in range(2 * READ_AHEAD + 7)]
    progress = progress_at(3)
    progress.receive(batch(0, values), 3)
    taken = []
    for limit in (1, READ_AHEAD - 1, 2, READ_AHEAD, 1, READ_AHEAD):
        some = progress.take(limit, 4)
        taken += some
        assert progress.position == taken[-1].offset + 1 == progress.handed_out
    assert [(one.offset, one.value, one.generation) for one in taken] == [
        (number, values[number], 4) for number in range(3, len(values))
    ]
    assert not progress.buffered


def test_decoded_records_get_generation_at_take_time() -> None:
    """The topic becomes ordered while a batch is delivered record by record."""
    progress = progress_at()
    progress.receive(batch(0, [b"a", b"b", b"c"]), 0)
    [first] = progress.take(1)
    assert first.generation == NO_GENERATION
    assert [(one.value, one.generation) for one in progress.take(1, 0) + progress.take(5, 0)] == [(b"b", 0), (b"c", 0)]


def test_corruption_behind_valid_records_is_reported_after_them_and_not_skipped() -> None:
    count = READ_AHEAD + 20
    data = bytearray(batch(0, [b"v"] * count))
    data[-2] ^= 1  # the last record's value is another one's length
    data[-3] = 60
    crc = crc32c(memoryview(data)[ATTRIBUTES_POSITION:])
    data[CRC_POSITION : CRC_POSITION + 4] = crc.to_bytes(4, "big")
    progress = progress_at()
    progress.receive(bytes(data), 0)
    sound = len(progress.take(count))
    assert READ_AHEAD <= sound < count
    for _ in range(2):
        with pytest.raises(KafkaError, match=f"offset 0 .* seek to offset {count} "):
            progress.take(5)
        assert progress.position == sound
