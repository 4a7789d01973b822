from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.storage.epochs import EpochEntry, LeaderEpochCache, format_checkpoint, parse_checkpoint


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache([EpochEntry(*entry) for entry in entries])


def test_end_offset_of_an_epoch_is_the_start_of_the_next() -> None:
    epochs = cache((2, 10), (4, 20), (7, 30))
    answers = {epoch: epochs.end_offset_for(epoch, 45) for epoch in (-1, 0, 1, 2, 3, 4, 5, 6, 7, 8)}
    assert answers == {
        -1: (-1, -1),  # nothing asked
        0: (0, 10),  # older than all: ended where the first begins
        1: (1, 10),
        2: (2, 20),
        3: (2, 20),  # unknown between two: the one before
        4: (4, 30),
        5: (4, 30),
        6: (4, 30),
        7: (7, 45),  # the latest ends with the log
        8: (-1, -1),  # from the future
    }
    assert LeaderEpochCache().end_offset_for(0, 45) == (-1, -1)


def test_assign_appends_an_epoch_and_replaces_conflicting_ones() -> None:
    epochs = cache()
    assert epochs.latest_epoch == -1
    epochs.assign(1, 0)
    epochs.assign(1, 5)  # goes on
    epochs.assign(3, 10)
    assert (epochs.entries, epochs.latest_epoch) == (((1, 0), (3, 10)), 3)
    epochs.assign(4, 10)  # epoch 3 wrote nothing
    assert epochs.entries == ((1, 0), (4, 10))
    epochs.assign(2, 4)  # somebody else's history: ours was never true
    assert epochs.entries == ((1, 0), (2, 4))


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 50)), max_size=20))
def test_entries_are_strictly_increasing(assigned: list[tuple[int, int]]) -> None:
    epochs = cache()
    for epoch, offset in assigned:
        epochs.assign(epoch, offset)
        entries = epochs.entries
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
        assert entries[-1].epoch == epoch
        assert entries[-1].start_offset <= offset


def test_epoch_of_an_offset_is_found() -> None:
    epochs = cache((2, 10), (4, 20))
    assert [epochs.epoch_for(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 4]


def test_truncation_removes_and_adjusts_entries() -> None:
    epochs = cache((2, 10), (4, 20), (7, 30))
    epochs.truncate_from_end(30)
    assert epochs.entries == ((2, 10), (4, 20))
    epochs.truncate_from_end(21)
    assert epochs.latest_epoch == 4
    epochs.truncate_from_start(5)
    assert epochs.entries == ((2, 10), (4, 20))
    epochs.truncate_from_start(15)
    assert epochs.entries == ((2, 15), (4, 20))
    epochs.truncate_from_start(25)
    assert epochs.entries == ((4, 25),)
    epochs.clear()
    assert epochs.entries == ()


def test_earlier_epochs_are_prepended_by_replay() -> None:
    epochs = cache((4, 20), (7, 30))
    epochs.replay_earlier([])
    assert epochs.entries == ((4, 20), (7, 30))
    epochs.replay_earlier([(2, 10), (2, 12), (3, 14), (4, 18)])
    assert epochs.entries == ((2, 10), (3, 14), (4, 18), (7, 30))


def test_only_changes_are_saved() -> None:
    saved: list[bytes] = []
    epochs = LeaderEpochCache((), saved.append)
    epochs.assign(1, 0)
    epochs.assign(1, 3)
    epochs.assign(2, 7)
    assert [parse_checkpoint(content) for content in saved] == [[(1, 0)], [(1, 0), (2, 7)]]
    epochs.truncate_from_end(8)
    epochs.truncate_from_start(0)
    assert len(saved) == 2
    epochs.truncate_from_end(7)
    epochs.truncate_from_start(2)
    epochs.clear()
    epochs.clear()
    assert [parse_checkpoint(content) for content in saved[2:]] == [[(1, 0)], [(1, 2)], []]


def test_changed_and_loaded_entries_are_flushed_once() -> None:
    flushed: list[int] = []
    cache = LeaderEpochCache((EpochEntry(0, 0),), lambda content: None, lambda: flushed.append(len(cache.entries)))
    cache.flush()
    cache.flush()
    assert flushed == [1], "who saved what was found may have died before the disk had it"
    cache.assign(1, 10)
    cache.flush()
    cache.flush()
    assert flushed == [1, 2]


def test_checkpoint_format_equals_kafkas() -> None:
    content = b"0\n2\n1 0\n5 120\n"
    assert parse_checkpoint(content) == [(1, 0), (5, 120)]
    assert format_checkpoint([EpochEntry(1, 0), EpochEntry(5, 120)]) == content


@pytest.mark.parametrize(
    "content", [b"", b"0", b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\nx y\n", b"0\n1\n1 2 3\n", b"\xff", b"0\n1\n1 12"]
)
def test_damaged_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_checkpoint(content)
