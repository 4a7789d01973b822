"""A follower's log: append what the leader sends, adopt its high watermark, truncate what it does not have.

Requests carry the epoch of the follower's last record (Fetch v12 on). If it is not in the leader's history, the leader
answers with the end of the diverging epoch, and the follower truncates its log (KIP-595's truncation on fetch, in place
of KIP-101's separate round).

Invariant: a row changes the log only if the partition still follows under the leader epoch of the request, and still
ends at the offset of the request. Source: `processPartitionData` of Kafka's `AbstractFetcherThread`.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.replication.follower_session import SessionEntry
from anabranch.broker.replication.partition import Partition, Role
from anabranch.broker.storage.log_append import append_as_follower
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.protocol.apis.fetch import EpochEndOffset, PartitionData

log = logging.getLogger(__name__)


class Outcome(enum.Enum):
    """What to do about a partition after its row of a Fetch response."""

    GO_ON = "go on"
    BACK_OFF = "back off"
    FENCED = "fenced"
    """The leader epoch has ended, or the disk has failed: wait for the controller."""
    OUT_OF_RANGE = "out of range"


def apply_fetched(entry: SessionEntry, row: PartitionData) -> Outcome:
    """Apply one partition's row of the response to its log."""
    try:
        return _apply(entry, row)
    except (OSError, KafkaError) as reason:
        return refused(entry.following.partition, reason)


def refused(partition: Partition, reason: Exception) -> Outcome:
    """Return what to do about a partition whose disk refuses a change; the other ones are fetched further."""
    log.warning("%r: cannot change the log: %s", partition, reason)
    return Outcome.BACK_OFF if partition.log.durability.failure is None else Outcome.FENCED


def _apply(entry: SessionEntry, row: PartitionData) -> Outcome:
    following = entry.following
    partition = following.partition
    if partition.role is not Role.FOLLOWER or partition.leader_epoch != following.leader_epoch:
        return Outcome.GO_ON  # the controller has changed the partition since the request
    if partition.log.log_end_offset != entry.fetch_offset:
        return Outcome.GO_ON
    if row.error_code:
        code = ErrorCode(row.error_code)
        # Log once per run of refusals: the fetch is repeated until it succeeds.
        level = logging.DEBUG if code in _PASSING or following.failures else logging.ERROR
        log.log(level, "%r: no records from the leader at offset %d: %s", partition, entry.fetch_offset, code.name)
        return _OUTCOMES.get(code, Outcome.BACK_OFF)
    if row.diverging_epoch.epoch >= 0:
        truncate(partition, row.diverging_epoch)
        return Outcome.GO_ON
    if row.records:
        append_as_follower(partition.log, row.records)
    if row.log_start_offset > partition.log.log_start_offset:
        partition.log.increment_log_start_offset(min(row.log_start_offset, partition.log.log_end_offset))
    partition.follow_high_watermark(row.high_watermark)
    return Outcome.GO_ON


_PASSING: Final = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""Codes that are usual while leaders change, and topics are created and deleted."""
_OUTCOMES: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Outcome.OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH: Outcome.FENCED,
}


def truncate(partition: Partition, leader: EpochEndOffset) -> None:
    """Truncate the log to where it can agree with the leader's history (KIP-595).

    `leader` is the leader's largest epoch that is not above the follower's last one, and its end offset.
    """
    end = partition.log.log_end_offset
    own_epoch, own_end = partition.log.epochs.end_offset_for(leader.epoch, end)
    if own_epoch == leader.epoch:
        target = min(own_end, leader.end_offset)
    elif own_epoch < 0:
        target = leader.end_offset
    else:
        target = own_end  # the epoch is unknown here: truncate to the one before, and let the leader compare again
    _truncate_to(partition, min(target, end))


def truncate_without_history(partition: Partition) -> None:
    """Truncate a log without epochs, which cannot be compared, to the high watermark."""
    if partition.log.epochs.latest_epoch < 0 and partition.log.log_end_offset > partition.high_watermark:
        _truncate_to(partition, partition.high_watermark)


def realign(partition: Partition, leader_start: int, leader_end: int) -> None:
    """Move the offset into the leader's log, which lost records in an unclean election or deleted the needed ones."""
    end = partition.log.log_end_offset
    if leader_end < end:
        _truncate_to(partition, leader_end)
    elif leader_start > end:
        log.warning("%r: restarting at %d, the leader's log start offset", partition, leader_start)
        partition.start_over_at(leader_start)


def _truncate_to(partition: Partition, offset: int) -> None:
    level = logging.WARNING if offset < partition.high_watermark else logging.INFO
    log.log(level, "%r: truncating to %d", partition, offset)
    partition.truncate_to(offset)
