"""The checkpoint files of a log directory, in Kafka's formats.

    replication-offset-checkpoint         high watermarks
    log-start-offset-checkpoint           log start offsets inside a segment, after DeleteRecords
    recovery-point-offset-checkpoint      offsets below which each log was flushed
    cleaner-offset-checkpoint             offsets below which each log was compacted
    lost-end-offset-checkpoint            offsets that logs had reached before they lost records (not in Kafka; rare)
    .kafka_cleanshutdown                  exists only between a clean shutdown and the next start

Each file is replaced as a whole and flushed, only if it changes. A damaged file does not prevent the start: its offsets
are recomputed, which costs time. The file of recovery points exists before the first log does, so a log that it does
not list was never flushed, and never compacted. Source: Kafka's `OffsetCheckpointFile`, `CleanShutdownFileHandler`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.broker.storage.files import Files

log = logging.getLogger(__name__)

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
LOST_ENDS: Final = "lost-end-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

Offsets = dict[tuple[str, int], int]


class OffsetCheckpoint:
    """A checkpoint file of offsets by topic and partition."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        self.changed = False
        """Whether `write` would write."""
        self.offsets: Offsets = {}
        """Read-only; `put` and `drop` change them."""
        self.is_on_disk = False
        """Whether a valid file exists."""

    def read(self) -> None:
        """Read the file, if it exists."""
        content = self._files.read_file(self._name)
        if content is None:
            return
        try:
            self.offsets = decode_checkpoint(content)
        except ValueError as reason:
            self.changed = True
            log.warning("%s is damaged, its offsets start empty: %s", self._name, reason)
        else:
            self.is_on_disk = True

    def put(self, key: tuple[str, int], offset: int) -> None:
        """Set the offset of a partition."""
        if self.offsets.get(key) != offset:
            self.offsets[key] = offset
            self.changed = True

    def drop(self, key: tuple[str, int]) -> None:
        """Remove the offset of a partition."""
        if self.offsets.pop(key, None) is not None:
            self.changed = True

    def write(self) -> None:
        """Write the offsets, if they have changed. Raises OSError."""
        if self.changed:
            self._files.write_file(self._name, encode_checkpoint(self.offsets), flushed=True)
            self.changed = False
            self.is_on_disk = True

    def create(self) -> None:
        """Write the file, if no valid one exists. Raises OSError."""
        if not self.is_on_disk:
            self.changed = True
            self.write()


def encode_checkpoint(offsets: Offsets) -> bytes:
    """Encode version, number of entries, and one line per entry: topic, partition and offset."""
    lines = [f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(content: bytes) -> Offsets:
    """Decode the entries of a checkpoint. Raises ValueError."""
    version, count, *lines = content.decode().splitlines()
    offsets = {(topic, int(index)): int(offset) for topic, index, offset in map(str.split, lines)}
    if version != "0" or len(offsets) != int(count):
        raise ValueError(f"version {version} with {len(offsets)} of {count} entries")
    return offsets


def take_clean_shutdown(files: Files) -> bool:
    """Remove the clean shutdown file; return whether it existed, which means that the last shutdown was clean."""
    clean = files.exists(CLEAN_SHUTDOWN)
    if clean:
        files.remove(CLEAN_SHUTDOWN)
        files.flush_directory("")
    return clean


def mark_clean_shutdown(files: Files, broker_epoch: int = -1) -> None:
    """Write the clean shutdown file: every log was flushed and closed."""
    files.write_file(CLEAN_SHUTDOWN, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())
