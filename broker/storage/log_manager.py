"""All logs of this broker: opens them when a replica needs them, and checkpoints what only memory knows.

A log is the directory `<topic>-<partition>` below the data directory. It is opened (and recovered, if the last life
ended without a clean stop) when the controller first names the partition, not at start: a broker with thousands of
logs is ready at once. The directory remembers the topic's id, so that a log of a deleted namesake is never taken
for this topic's.

Files, all in Kafka's formats: `replication-offset-checkpoint` (high watermarks) and `log-start-offset-checkpoint`
(starts inside a segment) here, `partition.metadata` in each log's directory. Source: Kafka's `LogManager`,
`OffsetCheckpointFile`, `PartitionMetadataFile`.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.storage.log import PartitionLog
from broker.storage.settings import LogSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from broker.config import BrokerSettings, TopicConfig
    from broker.storage.files import Files

log = logging.getLogger(__name__)

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"


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
        self._high_watermarks: dict[tuple[str, int], int] = {}
        self._log_starts: dict[tuple[str, int], int] = {}
        self._written: dict[str, bytes] = {}

    def load_checkpoints(self) -> None:
        """Read what the last life wrote."""
        self._high_watermarks = self._read(HIGH_WATERMARKS)
        self._log_starts = self._read(LOG_STARTS)

    def high_watermark(self, topic: str, index: int) -> int:
        """The last checkpointed high watermark; 0 for a partition that has none."""
        return self._high_watermarks.get((topic, index), 0)

    def open(self, topic: str, index: int, topic_id: bytes) -> PartitionLog:
        """The log of a partition, made if it is new. INCONSISTENT_TOPIC_ID if the directory is another topic's."""
        directory = f"{topic}-{index}"
        known = read_topic_id(self._files.read_file(f"{directory}/{PARTITION_METADATA}"))
        if any(known) and any(topic_id) and known != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{directory} holds another topic of this name")
        opened = self._logs.get((topic, index))
        if opened is None:
            self._files.make_directory(directory)
            opened = self._logs[topic, index] = PartitionLog.open(
                self._files,
                directory,
                self._log_settings(topic),
                self._clock_ms(),
                log_start_offset=self._log_starts.get((topic, index), 0),
            )
        if any(topic_id) and not any(known):
            self._files.write_file(f"{directory}/{PARTITION_METADATA}", encode_topic_id(topic_id))
        return opened

    def delete(self, topic: str, index: int) -> None:
        """Remove a partition's log, open or not, and forget its high watermark."""
        opened = self._logs.pop((topic, index), None)
        self._high_watermarks.pop((topic, index), None)
        self._log_starts.pop((topic, index), None)
        if opened is not None:
            opened.delete()
        else:
            self._files.remove_directory(f"{topic}-{index}")

    def config_changed(self, topic: str, index: int) -> None:
        """Hold an open log to its topic's present configuration."""
        opened = self._logs.get((topic, index))
        if opened is not None:
            opened.settings = self._log_settings(topic)

    def checkpoint(self, high_watermarks: Iterable[tuple[str, int, int]]) -> None:
        """Write high watermarks and log starts, if any moved since the last time. Partitions not named keep theirs."""
        for topic, index, offset in high_watermarks:
            self._high_watermarks[topic, index] = offset
        for key, opened in self._logs.items():
            if opened.log_start_offset > 0:
                self._log_starts[key] = opened.log_start_offset
        self._write(HIGH_WATERMARKS, self._high_watermarks)
        self._write(LOG_STARTS, self._log_starts)

    def close(self) -> None:
        """Close every log, so that the next life need not recover it."""
        for opened in self._logs.values():
            opened.close()
        self._logs.clear()

    def _read(self, path: str) -> dict[tuple[str, int], int]:
        content = self._files.read_file(path)
        if content is None:
            return {}
        self._written[path] = content
        try:
            return decode_checkpoint(content)
        except ValueError as reason:
            log.warning("%s is damaged, its offsets are learned again: %s", path, reason)
            return {}

    def _write(self, path: str, offsets: dict[tuple[str, int], int]) -> None:
        content = encode_checkpoint(offsets)
        if content != self._written.get(path):
            self._files.write_file(path, content)
            self._written[path] = content

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
            max_message_bytes=config.max_message_bytes,
            compression_type=config.compression_type,
            message_timestamp_type=config.message_timestamp_type,
            flush_messages=config.flush_messages,
            producer_id_expiration_ms=self._settings.producer_id_expiration_ms,
        )


def encode_checkpoint(offsets: dict[tuple[str, int], int]) -> bytes:
    """Version, number of entries, then one line of topic, partition and offset each."""
    lines = [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(content: bytes) -> dict[tuple[str, int], int]:
    """The entries of a checkpoint; ValueError when the file is damaged."""
    version, count, *lines = content.decode().splitlines()
    offsets = {(topic, int(index)): int(offset) for topic, index, offset in map(str.split, lines)}
    if version != "0" or len(offsets) != int(count):
        raise ValueError(f"version {version} with {len(offsets)} of {count} entries")
    return offsets


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
