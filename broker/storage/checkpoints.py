"""The files that speak for a whole data directory, in Kafka's formats.

    replication-offset-checkpoint         high watermarks
    log-start-offset-checkpoint           starts inside a segment, after DeleteRecords
    recovery-point-offset-checkpoint      up to where each log was flushed
    cleaner-offset-checkpoint             up to where each log was compacted
    lost-end-offset-checkpoint            how far logs went that have lost something (not Kafka's; rarely there)
    .kafka_cleanshutdown                  there only between a clean stop and the next start

Each is replaced as a whole, and only when it would change. A damaged one is not a reason not to start: offsets are
learned again, at the price of work. Source: `OffsetCheckpointFile`, `CleanShutdownFileHandler`.
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
    """One file of offsets, by topic and partition."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        self._changed = False
        self.offsets: Offsets = {}
        """Read them; they are changed with `put` and `drop`."""

    def read(self) -> None:
        """Read the offsets that the last process has written."""
        content = self._files.read_file(self._name)
        if content is None:
            return
        try:
            self.offsets = decode_checkpoint(content)
        except ValueError as reason:
            self._changed = True
            log.warning("%s is damaged, its offsets are learned again: %s", self._name, reason)

    def put(self, key: tuple[str, int], offset: int) -> None:
        """The offset of a partition, from the next `write` on."""
        if self.offsets.get(key) != offset:
            self.offsets[key] = offset
            self._changed = True

    def drop(self, key: tuple[str, int]) -> None:
        """Have no offset of a partition any more."""
        if self.offsets.pop(key, None) is not None:
            self._changed = True

    def write(self) -> None:
        """Write the present offsets, if they are others than before. Raises OSError."""
        if self._changed:
            self._files.write_file(self._name, encode_checkpoint(self.offsets))
            self._changed = False


def encode_checkpoint(offsets: Offsets) -> bytes:
    """Version, number of entries, then one line of topic, partition and offset each."""
    lines = [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(content: bytes) -> Offsets:
    """The entries of a checkpoint; ValueError when the file is damaged."""
    version, count, *lines = content.decode().splitlines()
    offsets = {(topic, int(index)): int(offset) for topic, index, offset in map(str.split, lines)}
    if version != "0" or len(offsets) != int(count):
        raise ValueError(f"version {version} with {len(offsets)} of {count} entries")
    return offsets


def take_clean_shutdown(files: Files) -> bool:
    """Whether the last life ended cleanly. The mark is removed: this life has yet to earn its own."""
    clean = files.exists(CLEAN_SHUTDOWN)
    files.remove(CLEAN_SHUTDOWN)
    return clean


def mark_clean_shutdown(files: Files, broker_epoch: int = -1) -> None:
    """Say that every log was flushed and closed."""
    files.write_file(CLEAN_SHUTDOWN, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())
