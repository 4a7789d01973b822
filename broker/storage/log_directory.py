"""A log directory of a broker (`log.dirs`): its logs, checkpoints, deleted logs and future logs.

A log is `<topic>-<partition>`. A deleted log is `<topic>-<partition>.<unique>-delete`. A copy that will replace a log
of another directory is `<topic>-<partition>.<unique>-future`. `checkpoints` has the files that concern the whole
directory. Sources: Kafka's `LogManager`, `PartitionMetadataFile`.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from anabranch.broker.storage.checkpoints import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    LOST_ENDS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from anabranch.broker.storage.log import PartitionLog
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_name import is_legal
from anabranch.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from anabranch.broker.storage.files import Files
    from anabranch.broker.storage.log_settings import LogSettings

log = logging.getLogger(__name__)

PARTITION_METADATA: Final = "partition.metadata"
DELETED_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
Key = tuple[str, int]


class LogDirectory:
    """A log directory, with one checkpoint file for each kind of offset."""

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self.files = files
        self.high_watermarks = OffsetCheckpoint(files, HIGH_WATERMARKS)
        self.log_starts = OffsetCheckpoint(files, LOG_STARTS)
        self.recovery_points = OffsetCheckpoint(files, RECOVERY_POINTS)
        self.cleaned = OffsetCheckpoint(files, CLEANED)
        self.lost_ends = OffsetCheckpoint(files, LOST_ENDS)
        self.clean = False
        """Whether the last shutdown was clean."""
        self.log_count = 0
        """Number of logs and future logs in this directory."""
        self.checkpoints = (
            self.high_watermarks,
            self.log_starts,
            self.recovery_points,
            self.cleaned,
            self.lost_ends,
        )
        self._deleted: dict[str, int] = {}
        self._deletions = 0
        self._renamed = False
        """Whether logs were renamed since the names of this directory were flushed."""
        self._forgotten = False
        """Whether checkpoints on the disk have offsets of logs that were removed."""

    def load(self) -> None:
        """Read the checkpoints, and remove deleted logs."""
        for checkpoint in self.checkpoints:
            checkpoint.read()
        self.clean = take_clean_shutdown(self.files)
        names = self.files.names("")
        self._renamed = any(name.endswith(DELETED_SUFFIX) for name in names)
        for name in names:
            if name.endswith(DELETED_SUFFIX):
                self._remove(name)
            elif name.rpartition("-")[2].isdecimal() or name.endswith(FUTURE_SUFFIX):
                self.log_count += 1
                self._note_recovery_point(name)

    def _note_recovery_point(self, name: str) -> None:
        """Record 0 for a log if the checkpoint of recovery points is lost: only other logs were never compacted."""
        topic, _, index = name.rpartition("-")
        if not self.recovery_points.is_on_disk and index.isdecimal():
            self.recovery_points.put((topic, int(index)), 0)

    def holds(self, key: Key) -> bool:
        """Check whether this directory has the log of a partition."""
        return self.files.exists(name_of(key))

    def futures(self) -> Iterator[tuple[Key, str]]:
        """Yield partition and directory name of each future log."""
        for name in self.files.names(""):
            key = key_of_future(name)
            if key is not None:
                yield key, name

    def future_of(self, key: Key) -> str | None:
        """Return the directory name of a partition's future log, or None."""
        return next((name for one, name in self.futures() if one == key), None)

    def new_future(self, key: Key, now_ms: int) -> str:
        """Return an unused directory name for a future log."""
        self._deletions += 1
        return f"{name_of(key)}.{now_ms:x}{self._deletions:x}{FUTURE_SUFFIX}"

    def topic_id(self, name: str) -> bytes:
        """Return the topic id of a log; ZERO_UUID if it has none."""
        return read_topic_id(self.files.read_file(f"{name}/{PARTITION_METADATA}"))

    def set_topic_id(self, name: str, topic_id: bytes) -> str:
        """Write the topic id of a log to its `partition.metadata`, and return the path, for the next flush."""
        path = f"{name}/{PARTITION_METADATA}"
        self.files.write_file(path, encode_topic_id(topic_id))
        return path

    def open(self, key: Key, settings: LogSettings, now_ms: int) -> PartitionLog:
        """Open the log of a partition; create it if it is missing."""
        name = name_of(key)
        if not self.files.exists(name):
            self.log_count += 1
            self.forget(key)
            self.settle()
        opened = PartitionLog.open(
            self.files,
            name,
            settings,
            now_ms,
            log_start_offset=self.log_starts.offsets.get(key, 0),
            recovery_point=self.recovery_points.offsets.get(key, 0),
            recovery_point_lost=self.recovery_points.offsets.get(key) == 0,
            cleaned_to=self.cleaned.offsets.get(key, 0),
            clean=self.clean,
        )
        self.watch(key, opened)
        self._remember_loss(key, opened)
        if opened.scanned_segments > 1:
            log.info("%s: scanned %d segments to open it", name, opened.scanned_segments)
        return opened

    def _remember_loss(self, key: Key, opened: PartitionLog) -> None:
        """Record that a log had reached a later offset, by its files or its checkpoints.

        The checkpoint of lost ends keeps this for the next start, since the truncated files no longer prove it.
        """
        stored = (self.high_watermarks, self.recovery_points, self.lost_ends)
        reached = max(opened.durability.reached, *(one.offsets.get(key, 0) for one in stored))
        opened.durability.reached = 0 if reached <= opened.log_end_offset else reached
        if opened.durability.reached:
            log.error(
                "%s ends at offset %d, but had reached %d: records are lost",
                opened.directory,
                opened.log_end_offset,
                reached,
            )
            self.lost_ends.put(key, reached)
            try:
                self.lost_ends.write()
            except OSError as reason:
                log.warning(
                    "cannot save that %s lost records, a restart may not know it: %s",
                    opened.directory,
                    reason,
                )

    def watch(self, key: Key, opened: PartitionLog) -> None:
        """Write a log's recovery point and start at once when they become lower: the old value has become wrong."""

        def distrust() -> None:
            self._take_recovery_point(key, opened)
            if opened.log_start_offset < self.log_starts.offsets.get(key, 0):
                self.log_starts.put(key, opened.log_start_offset)
            try:
                self.recovery_points.write()
                self.log_starts.write()
            except OSError as reason:
                log.warning("cannot write the recovery point and start of %s yet: %s", opened.directory, reason)

        opened.durability.on_cut = distrust

    def forget(self, key: Key) -> None:
        """Remove a partition from all checkpoints; `settle` writes them."""
        for checkpoint in self.checkpoints:
            self._forgotten |= key in checkpoint.offsets
            checkpoint.drop(key)

    def settle(self) -> None:
        """Flush removals before a new log is written: a crash must not find a former log's files or offsets with it.

        And create the file of recovery points, which tells that the new log was not compacted. Raises OSError.
        """
        self.flush_names()
        if self._forgotten:
            self.write_checkpoints()
        self.recovery_points.create()

    def write_checkpoints(self) -> None:
        """Write the checkpoints that have changed. Raises OSError."""
        for checkpoint in self.checkpoints:
            checkpoint.write()
        self._forgotten = False

    def discard(self, name: str, now_ms: int, delay_ms: int) -> None:
        """Rename a log to a deleted log, which is removed after `delay_ms`."""
        if not self.files.exists(name):
            return
        self._deletions += 1
        target = f"{name[:200]}.{now_ms:x}{self._deletions:x}{DELETED_SUFFIX}"
        self.files.rename(name, target)
        self._renamed = True
        self.log_count -= 1
        if delay_ms > 0:
            self._deleted[target] = now_ms + delay_ms
        else:
            self._remove(target)

    def flush_names(self) -> None:
        """Flush the names of the logs, if some were renamed."""
        if self._renamed:
            self.files.flush_directory("")
            self._renamed = False

    def remove_deleted(self, now_ms: int) -> Iterator[None]:
        """Remove the deleted logs whose delay has passed; yield after each."""
        for name in [name for name, due_ms in self._deleted.items() if due_ms <= now_ms]:
            del self._deleted[name]
            self._remove(name)
            yield

    def _remove(self, name: str) -> None:
        self.flush_names()  # else a power failure might bring back a part of the log under its former name
        self.files.remove_directory(name)

    def take_offsets(self, key: Key, opened: PartitionLog) -> None:
        """Put the current offsets of a log into the checkpoints."""
        if opened.log_start_offset > 0:
            self.log_starts.put(key, opened.log_start_offset)
        self._take_recovery_point(key, opened)
        if opened.cleaned_to > 0 or key in self.cleaned.offsets:
            self.cleaned.put(key, opened.cleaned_to)
        if opened.durability.reached > 0:
            self.lost_ends.put(key, opened.durability.reached)
        else:
            self.lost_ends.drop(key)

    def _take_recovery_point(self, key: Key, opened: PartitionLog) -> None:
        if opened.recovery_point > 0:
            self.recovery_points.put(key, opened.recovery_point)
        elif self.recovery_points.offsets.get(key, 0) > 0:
            self.recovery_points.drop(key)  # all that was compacted is gone

    def mark_clean(self) -> None:
        """Write the clean shutdown file: every log was flushed and closed."""
        mark_clean_shutdown(self.files)


def name_of(key: Key) -> str:
    """Return the directory name of a partition's log. Raises KafkaError with INVALID_TOPIC_EXCEPTION."""
    topic, index = key
    if index < 0 or not is_legal(topic):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"invalid name of a log: topic {topic!r}, partition {index}"
        )
    return f"{topic}-{index}"


def newest_segment(directory: LogDirectory, key: Key) -> str:
    """Return the name of the last segment file of a partition's log; empty if it has none."""
    return max((name for name in directory.files.names(name_of(key)) if name.endswith(".log")), default="")


def key_of_future(name: str) -> Key | None:
    """Return the partition of a future log's directory name; None for other names."""
    log_name, dot, unique = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    topic, _, index = log_name.rpartition("-")
    if not name.endswith(FUTURE_SUFFIX) or not dot or not unique or not index.isdecimal() or not is_legal(topic):
        return None
    return topic, int(index)


def encode_topic_id(topic_id: bytes) -> bytes:
    """Return the content of `partition.metadata`."""
    return f"version: 0\ntopic_id: {base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}\n".encode()


def read_topic_id(content: bytes | None) -> bytes:
    """Return the topic id in the content of `partition.metadata`; ZERO_UUID if there is none."""
    for line in (content or b"").decode(errors="replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                topic_id = base64.urlsafe_b64decode(f"{value}==")
            except ValueError:
                return ZERO_UUID
            return topic_id if len(topic_id) == len(ZERO_UUID) else ZERO_UUID
    return ZERO_UUID
