"""Moves replicas between the log directories of this broker (KIP-113), in steps of copying.

    asked --begin--> copying --everything is there--> swapped
                        ^  |
                        +--+ the log was cut or lost its beginning: the copy follows it

The copy follows its log as a follower follows a leader: it is truncated where the epochs diverge, and it drops what the
log has deleted at its start. Appends continue meanwhile; the last piece and the swap are one step, in which no other
task runs. After a restart a move continues at the end of the copy. A disk error is retried; after a failed swap the log
stays where it was. Source: Kafka's `ReplicaAlterLogDirsThread`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.storage.log_append import append_as_follower
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.storage.log import PartitionLog
    from anabranch.broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

STEP_BYTES: Final = 256 * 1024
"""The bytes copied in one step: some milliseconds of work."""
NAME_LENGTH_MAX: Final = 255
UNIQUE_LENGTH: Final = 1 + 32 + len("-future")
"""The length of Kafka's suffix for the directory of a log that is copied."""


class LogMoves:
    """The replicas that are being moved."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._moving: dict[Partition, PartitionLog] = {}

    def __len__(self) -> int:
        return len(self._moving)

    def ask(self, topic: str, index: int, path: str, partition: Partition | None) -> None:
        """Request a move, or cancel it if the replica is there already; a replica to come is created there. Raises
        KafkaError.
        """
        if len(f"{topic}-{index}") + UNIQUE_LENGTH > NAME_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        target = self._logs.directory(path)
        if partition is None:
            self._logs.prefer(topic, index, path)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic}-{index} has no replica on this broker yet")
        moving_to = self._logs.future_directory(topic, index)
        if moving_to is target:
            return
        if moving_to is not None:
            self.forget(partition)
            self._logs.drop_future(topic, index)
        if self._logs.home((topic, index)) is not target:
            try:
                self._moving[partition] = self._logs.begin_future(topic, index, path)
            except OSError as reason:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(reason)) from reason
            log.info("%r: moving to %s", partition, path)

    def resume(self, partition: Partition) -> None:
        """Continue a move from before a restart, if there is one for the opened replica and its copy can be opened."""
        try:
            future = self._logs.future(partition.topic, partition.index)
        except OSError as reason:
            log.error("%r: cannot continue its move before a restart or another request: %s", partition, reason)
            return
        if future is not None:
            self._moving[partition] = future
            log.info(
                "%r: continuing the move, %d of %d", partition, future.log_end_offset, partition.log.log_end_offset
            )

    def forget(self, partition: Partition) -> None:
        """Remove a replica that this broker no longer hosts."""
        self._moving.pop(partition, None)

    def step(self) -> bool:
        """Copy one piece of a replica, and swap after the last; return whether there may be more to do at once."""
        for partition, future in self._moving.items():
            try:
                if copy_piece(partition.log, future):
                    self._swap(partition)
            except (OSError, KafkaError) as reason:
                log.warning("cannot continue the move of %r yet: %s", partition, reason)
                continue
            return True
        return False

    def _swap(self, partition: Partition) -> None:
        path = self._logs.future_directory(partition.topic, partition.index)
        partition.move_to(self._logs.promote_future(partition.topic, partition.index))
        del self._moving[partition]
        log.info("%r: moved to %s", partition, path.path if path is not None else "?")


def copy_piece(current: PartitionLog, future: PartitionLog) -> bool:
    """Copy one piece; return whether the copy is complete."""
    if future.log_end_offset < current.log_start_offset or future.log_start_offset > current.log_end_offset:
        future.truncate_fully_and_start_at(current.log_start_offset)
    cut_where_they_part(current, future)
    if current.log_start_offset > future.log_start_offset:
        future.increment_log_start_offset(current.log_start_offset)
    records = current.read(future.log_end_offset, STEP_BYTES)
    if len(records):
        append_as_follower(future, records)
    if future.log_end_offset < current.log_end_offset and not len(records):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{current.directory}: nothing at {future.log_end_offset}")
    return future.log_end_offset == current.log_end_offset


def cut_where_they_part(current: PartitionLog, future: PartitionLog) -> None:
    """Truncate a copy to where its log agrees: a follower's log may have been truncated meanwhile."""
    while future.log_end_offset > future.log_start_offset:
        epoch = min(future.epochs.latest_epoch, current.epochs.latest_epoch)
        known, end = current.epochs.end_offset_for(epoch, current.log_end_offset)
        own_end = future.epochs.end_offset_for(known, future.log_end_offset)[1]
        common = min(end, own_end) if own_end >= 0 else current.log_start_offset
        if common >= future.log_end_offset:
            return
        future.truncate_to(max(common, future.log_start_offset))
