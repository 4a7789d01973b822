"""A checkpoint never passes an unread record of another writer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.clients.streams.changelog import (
    MARK_HEADERS,
    Checkpoint,
    Marks,
    arrived_mark,
    changelog_topic,
    departed_mark,
    is_mark,
)


def test_changelog_names_are_those_of_kafka_streams() -> None:
    assert changelog_topic("app", "counts") == "app-counts-changelog"


def test_own_changelog_records_are_not_read_again() -> None:
    checkpoint = Checkpoint(10)
    checkpoint.wrote([10, 11, 12], transactional=True)
    checkpoint.wrote([14], transactional=True)  # 13 is the marker
    assert (checkpoint.offset, checkpoint.gap) == (15, False)


def test_without_transactions_changelog_has_no_markers() -> None:
    checkpoint = Checkpoint()
    checkpoint.wrote([0, 1], transactional=False)
    checkpoint.wrote([2], transactional=False)
    assert (checkpoint.offset, checkpoint.gap) == (3, False)


def test_foreign_changelog_records_between_own_ones_must_be_read() -> None:
    for foreign in ([10, 12], [11, 12]):
        checkpoint = Checkpoint(10)
        checkpoint.wrote(foreign, transactional=True)
        checkpoint.wrote([14, 15], transactional=True)
        assert (checkpoint.offset, checkpoint.gap) == (10, True)
        checkpoint.read_to(17)
        assert (checkpoint.offset, checkpoint.gap) == (17, False)


@given(
    st.lists(st.sampled_from(["own", "foreign", "foreign in between", "read", "aborted"]), max_size=30), st.booleans()
)
def test_no_unread_foreign_record_is_below_checkpoint(steps: list[str], transactional: bool) -> None:
    checkpoint, end, unread = Checkpoint(), 0, set[int]()
    for step in steps:
        if step == "read":
            checkpoint.read_to(end)
            unread.clear()
        elif step == "aborted":
            end += 2
            checkpoint.doubt()
        elif step == "foreign":
            unread.add(end)
            end += 2
        else:
            offsets = [end, end + 1]
            if step == "foreign in between":
                offsets = [end, end + 2]
                unread.add(end + 1)
            end = offsets[-1] + 1 + transactional
            checkpoint.wrote(offsets, transactional=transactional)
        assert all(offset >= checkpoint.offset for offset in unread), (step, checkpoint.offset, unread)


def test_marks_record_handed_over_and_arrived_key_epochs() -> None:
    rows = dict([arrived_mark(3, 1), arrived_mark(5, 2), arrived_mark(3, 4), departed_mark(4)])
    assert Marks.read(rows) == Marks({3: 4, 5: 2}, 4)
    assert Marks.read({}) == Marks({}, -1)
    assert is_mark(MARK_HEADERS)
    assert not is_mark((("other", None),))
