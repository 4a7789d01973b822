"""A follower applies the leader's answers to its log."""

from __future__ import annotations

import logging

import pytest

from anabranch.broker.replication.follower_log import (
    Outcome,
    apply_fetched,
    realign,
    truncate,
    truncate_without_history,
)
from anabranch.broker.replication.follower_session import Following, SessionEntry
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.apis.fetch import EpochEndOffset
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.partitions import fetched_row, follower
from tests.broker.replication.replica_cluster import batch


@pytest.mark.parametrize(
    ("leader", "end"),
    [
        # our log: epoch 1 is 0..2, epoch 3 is 3..5, epoch 5 is 6..8
        ((5, 7), 7),  # the same epoch ended earlier on the leader
        ((3, 4), 4),
        ((3, 8), 6),  # the leader has more of epoch 3 than we do: keep all ours
        ((4, 8), 6),  # an epoch we never saw: go back to the end of the one before it
        ((2, 5), 3),
        ((0, 2), 0),  # older than all we have: not a record in common
    ],
)
def test_log_is_truncated_to_the_common_epoch_end(leader: tuple[int, int], end: int) -> None:
    partition = follower((1, 3), (3, 3), (5, 3))
    truncate(partition, EpochEndOffset(epoch=leader[0], end_offset=leader[1]))
    assert partition.log.log_end_offset == end


def test_truncation_below_the_high_watermark_lowers_it() -> None:
    partition = follower((1, 3), (3, 3))
    partition.high_watermark = 6
    truncate(partition, EpochEndOffset(epoch=1, end_offset=2))
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 2)


def test_truncation_removes_epochs_without_records() -> None:
    partition = follower((1, 3), (4, 0))
    truncate(partition, EpochEndOffset(epoch=1, end_offset=3))
    assert (partition.log.log_end_offset, partition.log.epochs.latest_epoch) == (3, 1)


def test_log_without_epochs_is_truncated_to_the_high_watermark() -> None:
    partition = follower((1, 3))
    partition.high_watermark = 2
    truncate_without_history(partition)
    assert partition.log.log_end_offset == 3, "it has a history"
    partition.log.epochs.clear()
    truncate_without_history(partition)
    assert partition.log.log_end_offset == 2


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [((0, 2), (0, 2)), ((5, 9), (5, 5)), ((0, 3), (0, 3)), ((1, 8), (0, 3))],
)
def test_offset_out_of_range_is_reset_to_the_leaders_log(bounds: tuple[int, int], expected: tuple[int, int]) -> None:
    partition = follower((1, 3))
    realign(partition, *bounds)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == expected


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.NONE, Outcome.GO_ON),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Outcome.OUT_OF_RANGE),
        (ErrorCode.FENCED_LEADER_EPOCH, Outcome.FENCED),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Outcome.BACK_OFF),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Outcome.BACK_OFF),
        (ErrorCode.UNKNOWN_TOPIC_ID, Outcome.BACK_OFF),
    ],
)
def test_fetch_error_code_determines_the_outcome(code: ErrorCode, outcome: Outcome) -> None:
    assert apply_fetched(SessionEntry(Following(follower((1, 3)), 9), 3), fetched_row(code)) is outcome


def test_persistent_fetch_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    following = Following(follower((1, 3)), 9)
    with caplog.at_level(logging.INFO):
        for failures in range(3):
            following.failures = failures
            assert (
                apply_fetched(SessionEntry(following, 3), fetched_row(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                is Outcome.BACK_OFF
            )
            assert apply_fetched(SessionEntry(following, 3), fetched_row(ErrorCode.CORRUPT_MESSAGE)) is Outcome.BACK_OFF
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "offset 3: CORRUPT_MESSAGE" in record.getMessage()


def sent(offset: int, epoch: int = 9) -> bytes:
    source = PartitionLog.open(MemoryFiles(), "s-0", LogSettings(), 0)
    source.truncate_fully_and_start_at(offset)
    append_as_leader(source, batch("new"), leader_epoch=epoch, now_ms=1)
    return bytes(source.read(offset, 1 << 20))


def test_fetched_records_are_appended_unchanged_with_their_epoch() -> None:
    partition = follower((1, 3))
    assert apply_fetched(SessionEntry(Following(partition, 9), 3), fetched_row(records=sent(3))) is Outcome.GO_ON
    assert (partition.log.log_end_offset, partition.high_watermark) == (4, 4)
    assert partition.log.epochs.entries[-1] == (9, 3)


def test_response_that_diverges_in_the_first_epoch_truncates_the_log() -> None:
    partition = follower((0, 3), (1, 3))
    row = fetched_row(diverging_epoch=EpochEndOffset(epoch=0, end_offset=2))
    assert apply_fetched(SessionEntry(Following(partition, 9), 6), row) is Outcome.GO_ON
    assert partition.log.log_end_offset == 2


@pytest.mark.parametrize(("asked_epoch", "asked_offset"), [(8, 3), (9, 2)])
def test_response_to_an_outdated_request_is_ignored(asked_epoch: int, asked_offset: int) -> None:
    partition = follower((1, 3))
    assert (
        apply_fetched(SessionEntry(Following(partition, asked_epoch), asked_offset), fetched_row(records=sent(3)))
        is Outcome.GO_ON
    )
    assert (partition.log.log_end_offset, partition.high_watermark) == (3, 0)


def test_damaged_records_are_fetched_again() -> None:
    partition = follower((1, 3))
    records = bytearray(sent(3))
    records[-1] ^= 1
    assert (
        apply_fetched(SessionEntry(Following(partition, 9), 3), fetched_row(records=bytes(records))) is Outcome.BACK_OFF
    )
    assert partition.log.log_end_offset == 3


def test_log_start_follows_the_leaders_up_to_the_log_end() -> None:
    partition = follower((1, 3))
    apply_fetched(SessionEntry(Following(partition, 9), 3), fetched_row(log_start_offset=2))
    assert partition.log.log_start_offset == 2
    apply_fetched(SessionEntry(Following(partition, 9), 3), fetched_row(log_start_offset=8))
    assert partition.log.log_start_offset == 3
