"""All logs of this broker: opens them when a replica needs them, and checkpoints what only memory knows.

A log is the directory `<topic>-<partition>` below the data directory. It is opened (and recovered, if the last life
ended without a clean stop) when the controller first names the partition, not at start: a broker with thousands of
logs is ready at once. The directory remembers the topic's id, so that a log of a deleted namesake is never taken
for this topic's.

A deleted log is renamed to `<topic>-<partition>.<unique>-delete` and removed after `file.delete.delay.ms`, so that a
topic deleted by mistake can be rescued by hand for that long; what a crash leaves of it goes at the next start.

Flushing, compaction and removal are done in small steps, one a call, because they share the event loop with requests.
Sources: Kafka's `LogManager`, `PartitionMetadataFile`; the files of the directory are in `checkpoints`.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.storage.checkpoints import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from broker.storage.cleaner import Cleaning, dirt_of, is_worth_cleaning
from broker.storage.log import PartitionLog
from broker.storage.settings import LogSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from broker.config import BrokerSettings, TopicConfig
    from broker.storage.files import Files

log = logging.getLogger(__name__)

PARTITION_METADATA: Final = "partition.metadata"
DELETED_SUFFIX: Final = "-delete"


class LogManager:
    """The logs below one data directory."""

    def __init__(
        self,
        files: Files,
        settings: BrokerSettings,
        topic_config: Callable[[str], TopicConfig],
        clock_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._settings = settings
        self._topic_config = topic_config
        self._clock_ms = clock_ms
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._high_watermarks = OffsetCheckpoint(files, HIGH_WATERMARKS)
        self._log_starts = OffsetCheckpoint(files, LOG_STARTS)
        self._recovery_points = OffsetCheckpoint(files, RECOVERY_POINTS)
        self._cleaned = OffsetCheckpoint(files, CLEANED)
        self._checkpoints = (self._high_watermarks, self._log_starts, self._recovery_points, self._cleaned)
        self._clean = False
        self._deleted: dict[str, int] = {}
        self._deletions = 0
        self._cleaning: Cleaning | None = None
        self._uncleanable: set[PartitionLog] = set()

    def load_checkpoints(self) -> None:
        """Read what the last life wrote, and remove the logs it had deleted."""
        for checkpoint in self._checkpoints:
            checkpoint.read()
        self._clean = take_clean_shutdown(self._files)
        for name in self._files.names(""):
            if name.endswith(DELETED_SUFFIX):
                self._files.remove_directory(name)

    def high_watermark(self, topic: str, index: int) -> int:
        """The last checkpointed high watermark; 0 for a partition that has none."""
        return self._high_watermarks.offsets.get((topic, index), 0)

    def logs(self) -> Iterable[tuple[tuple[str, int], PartitionLog]]:
        """All open logs with their partitions."""
        return self._logs.items()

    def open(self, topic: str, index: int, topic_id: bytes) -> PartitionLog:
        """The log of a partition, made if it is new. INCONSISTENT_TOPIC_ID if the directory is another topic's."""
        directory = f"{topic}-{index}"
        known = read_topic_id(self._files.read_file(f"{directory}/{PARTITION_METADATA}"))
        if any(known) and any(topic_id) and known != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{directory} holds another topic of this name")
        opened = self._logs.get((topic, index))
        if opened is None:
            opened = self._logs[topic, index] = self._open(topic, index, directory)
        if any(topic_id) and not any(known):
            self._files.write_file(f"{directory}/{PARTITION_METADATA}", encode_topic_id(topic_id))
        return opened

    def _open(self, topic: str, index: int, directory: str) -> PartitionLog:
        key = (topic, index)
        opened = PartitionLog.open(
            self._files,
            directory,
            self._log_settings(topic),
            self._clock_ms(),
            log_start_offset=self._log_starts.offsets.get(key, 0),
            recovery_point=self._recovery_points.offsets.get(key, 0),
            clean=self._clean,
        )
        opened.cleaned_to = min(self._cleaned.offsets.get(key, 0), opened.log_end_offset)

        def distrust() -> None:
            self._recovery_points.offsets[key] = opened.recovery_point
            try:
                self._recovery_points.write()
            except OSError as reason:
                log.warning("the recovery point of %s has to wait: %s", directory, reason)

        opened.on_cut = distrust
        if opened.scanned_segments > 1:
            log.info("%s: scanned %d segments to open it", directory, opened.scanned_segments)
        return opened

    def delete(self, topic: str, index: int) -> None:
        """Forget a partition's log, open or not; its files go when `file.delete.delay.ms` has passed."""
        opened = self._logs.pop((topic, index), None)
        for checkpoint in self._checkpoints:
            checkpoint.offsets.pop((topic, index), None)
        if opened is not None:
            self._stop_cleaning(opened)
            opened.on_cut = None
            opened.segments.close()
        directory = f"{topic}-{index}"
        if not self._files.exists(directory):
            return
        now_ms = self._clock_ms()
        self._deletions += 1
        target = f"{directory[:200]}.{now_ms:x}{self._deletions:x}{DELETED_SUFFIX}"
        self._files.rename(directory, target)
        self._deleted[target] = now_ms + self._topic_config(topic).file_delete_delay_ms
        self.remove_deleted()

    def remove_deleted(self) -> None:
        """Remove the logs that were deleted long enough ago."""
        now_ms = self._clock_ms()
        for directory in [directory for directory, due_ms in self._deleted.items() if due_ms <= now_ms]:
            del self._deleted[directory]
            self._files.remove_directory(directory)

    def config_changed(self, topic: str, index: int) -> None:
        """Hold an open log to its topic's present configuration."""
        opened = self._logs.get((topic, index))
        if opened is not None:
            opened.settings = self._log_settings(topic)

    def adopt(self, settings: BrokerSettings) -> None:
        """Hold every open log to the broker's present settings."""
        self._settings = settings
        for topic, index in self._logs:
            self.config_changed(topic, index)

    def checkpoint(self, high_watermarks: Iterable[tuple[str, int, int]]) -> None:
        """Write all offsets that moved since the last time. Partitions not named keep theirs. Raises OSError."""
        for topic, index, offset in high_watermarks:
            self._high_watermarks.offsets[topic, index] = offset
        for key, opened in self._logs.items():
            if opened.log_start_offset > 0:
                self._log_starts.offsets[key] = opened.log_start_offset
            if opened.recovery_point > 0 or key in self._recovery_points.offsets:
                self._recovery_points.offsets[key] = opened.recovery_point
            if opened.cleaned_to > 0 or key in self._cleaned.offsets:
                self._cleaned.offsets[key] = opened.cleaned_to
        for checkpoint in self._checkpoints:
            checkpoint.write()

    def flush_step(self) -> bool:
        """Flush one sealed segment, so that the next life need not scan it; whether there was one."""
        for opened in self._logs.values():
            if opened.has_sealed_unflushed:
                try:
                    opened.flush_sealed()
                except KafkaError as reason:
                    log.warning("%s", reason)
                    return False
                return True
        return False

    def clean_step(self, high_watermarks: Callable[[], Iterable[tuple[str, int, int]]]) -> bool:
        """Do a piece of compaction, on the dirtiest log there is; whether there may be more to do at once."""
        cleaning = self._cleaning
        if cleaning is None:
            self._cleaning = self._next_cleaning(high_watermarks())
            return self._cleaning is not None
        try:
            if not cleaning.step():
                self._cleaning = None
        except KafkaError as reason:
            log.error("%s: not compacted any more in this life: %s", cleaning.log.directory, reason)
            self._uncleanable.add(cleaning.log)
            self._cleaning = None
        except OSError as reason:
            log.warning("%s: compaction has to wait: %s", cleaning.log.directory, reason)
            self._cleaning = None
            return False
        return True

    def _next_cleaning(self, high_watermarks: Iterable[tuple[str, int, int]]) -> Cleaning | None:
        now_ms = self._clock_ms()
        dirty = []
        for topic, index, high_watermark in high_watermarks:
            opened = self._logs.get((topic, index))
            if opened is None or not opened.settings.compacts or opened in self._uncleanable:
                continue
            dirt = dirt_of(opened, high_watermark, now_ms)
            if is_worth_cleaning(opened, dirt):
                dirty.append((dirt.ratio, dirt, opened))
        if not dirty:
            return None
        _, dirt, opened = max(dirty, key=lambda one: one[0])
        return Cleaning(self._files, opened, dirt, now_ms)

    def _stop_cleaning(self, opened: PartitionLog | None = None) -> None:
        if self._cleaning is not None and opened in (None, self._cleaning.log):
            self._cleaning.abandon()
            self._cleaning = None

    def close(self) -> None:
        """Close every log; if all went well, say so, and the next life opens them without a scan."""
        clean = True
        self._stop_cleaning()
        for opened in self._logs.values():
            try:
                opened.close()
            except OSError as reason:
                log.error("%s: not closed properly: %s", opened.directory, reason)
                clean = False
        try:
            self.checkpoint(())
            if clean:
                mark_clean_shutdown(self._files)
        except OSError as reason:
            log.error("the checkpoints could not be written: %s", reason)
        self._logs.clear()

    def _log_settings(self, topic: str) -> LogSettings:
        config = self._topic_config(topic)
        return LogSettings(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            cleanup_policy=config.cleanup_policy,
            delete_retention_ms=config.delete_retention_ms,
            min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=config.min_compaction_lag_ms,
            max_compaction_lag_ms=config.max_compaction_lag_ms,
            max_message_bytes=config.max_message_bytes,
            compression_type=config.compression_type,
            compression_gzip_level=config.compression_gzip_level,
            compression_lz4_level=config.compression_lz4_level,
            compression_zstd_level=config.compression_zstd_level,
            message_timestamp_type=config.message_timestamp_type,
            message_timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            message_timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            message_downconversion_enable=config.message_downconversion_enable,
            flush_messages=config.flush_messages,
            producer_id_expiration_ms=self._settings.producer_id_expiration_ms,
        )


def encode_topic_id(topic_id: bytes) -> bytes:
    """The content of `partition.metadata`."""
    return f"version: 0\ntopic_id: {base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}\n".encode()


def read_topic_id(content: bytes | None) -> bytes:
    """The topic id that a log's directory remembers; ZERO_UUID when it remembers none."""
    for line in (content or b"").decode(errors="replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                topic_id = base64.urlsafe_b64decode(f"{value}==")
            except ValueError:
                return ZERO_UUID
            return topic_id if len(topic_id) == len(ZERO_UUID) else ZERO_UUID
    return ZERO_UUID
