"""A store starts empty if, and only if, its changelog cannot restore it."""

from __future__ import annotations

import pytest

from anabranch.clients.streams.changelog_bounds import ChangelogBounds, reset_reason
from anabranch.protocol.wire import ZERO_UUID

ID, OTHER = b"i" * 16, b"o" * 16
GONE, SHORT, AGAIN = (
    "records from offset {} to {} were deleted",
    "ends at offset {}, before",
    "deleted and created again",
)


@pytest.mark.parametrize(
    ("checkpoint", "start", "end", "reason"),
    [
        (0, 0, 0, None),  # new
        (0, 0, 6, None),  # nothing restored yet
        (3, 0, 6, None),
        (6, 0, 6, None),
        (3, 3, 6, None),  # cut off up to what is restored
        (6, 6, 6, None),  # emptied, and all of it restored
        (0, 6, 6, GONE.format(0, 5)),  # emptied before anything was restored
        (3, 6, 6, GONE.format(3, 5)),
        (0, 3, 6, GONE.format(0, 2)),
        (2, 3, 6, GONE.format(2, 2)),
        (6, 0, 0, SHORT.format(0)),  # made again, and empty
        (6, 0, 3, SHORT.format(3)),
        (7, 0, 6, SHORT.format(6)),
        (9, 3, 6, SHORT.format(6)),
        (7, 6, 6, SHORT.format(6)),
        (3, 6, 5, GONE.format(3, 5)),  # cut off while the bounds were looked up
    ],
)
@pytest.mark.parametrize("topic_id", [ID, b"", ZERO_UUID])
def test_checkpoint_outside_of_changelog_bounds_requires_reset(
    checkpoint: int, start: int, end: int, reason: str | None, topic_id: bytes
) -> None:
    found = reset_reason(checkpoint, topic_id, ChangelogBounds(ID, start, end))
    assert found is None if reason is None else reason in (found or "")


@pytest.mark.parametrize(
    ("checkpoint", "start", "end", "whole"),
    [(5, 6, 6, True), (4, 6, 6, False), (5, 6, 7, False), (4, 5, 6, False), (7, 6, 6, False)],
)
def test_missing_marker_of_last_transaction_requires_no_reset(
    checkpoint: int, start: int, end: int, whole: bool
) -> None:
    """A transaction has a record and a marker, so one offset at the end is a marker."""
    found = reset_reason(checkpoint, ID, ChangelogBounds(ID, start, end), transactional=True)
    assert (found is None) == whole
    assert reset_reason(checkpoint, ID, ChangelogBounds(ID, start, end)), "it may be a record"


@pytest.mark.parametrize(("checkpoint", "start", "end"), [(0, 0, 0), (0, 0, 6), (3, 0, 6), (6, 6, 6), (9, 0, 6)])
def test_another_topic_id_requires_reset(checkpoint: int, start: int, end: int) -> None:
    assert AGAIN in (reset_reason(checkpoint, ID, ChangelogBounds(OTHER, start, end)) or "")


@pytest.mark.parametrize("topic_id", [b"", ZERO_UUID])
def test_unknown_topic_id_of_changelog_requires_no_reset(topic_id: bytes) -> None:
    assert reset_reason(3, ID, ChangelogBounds(topic_id, 0, 6)) is None
