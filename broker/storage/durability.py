"""Flushes one log and keeps its recovery point.

Invariants: everything below the recovery point has been flushed: batches, indexes, leader epochs, and the names of all
these files. A truncation below the recovery point is reported by `on_cut` before the next append. Names are flushed
when files were added or removed: else a power failure would lose a whole segment, or bring back one that a truncation
has removed. Source: Kafka's `LocalLog.flush`.

A flush that fails because the disk is full can be retried. Any other failure is permanent: the kernel may have dropped
dirty pages, so the log refuses appends until it is opened and scanned again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from anabranch.broker.storage.epochs import LeaderEpochCache
from anabranch.broker.storage.files import NO_ROOM, Files
from anabranch.broker.storage.segments import Segments
from anabranch.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)


class Durability:
    """Flushes the segments and leader epochs of one log, and keeps its recovery point."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_files",
        "_segments",
        "_unflushed_directories",
        "_unflushed_files",
        "failure",
        "on_cut",
        "reached",
        "recovery_point",
        "unflushed",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        segments: Segments,
        epochs: LeaderEpochCache,
        *,
        recovery_point: int,
        reached: int = 0,
        names_flushed: bool = False,
    ) -> None:
        """`names_flushed`: an earlier process has flushed the names of the log's files, and its own."""
        self._files = files
        self._directory = directory
        self._unflushed_files: dict[str, None] = {}
        """Small files of the log that were written since the last flush."""
        parent = directory.rpartition("/")[0]
        self._unflushed_directories = {} if names_flushed else dict.fromkeys((directory, parent))
        self._segments = segments
        self._epochs = epochs
        self.recovery_point = recovery_point
        """The offset below which everything has been flushed."""
        self.unflushed = 0
        """Number of records appended since the last complete flush."""
        self.failure: str | None = None
        """The reason why the log refuses appends."""
        self.reached = reached
        """An offset that the log had reached, if it ended before that when it was opened; otherwise 0."""
        self.on_cut: Callable[[], None] | None = None
        """Called when the recovery point or the log start has become lower: the checkpointed value is wrong then."""

    def names_changed(self) -> None:
        """Note that files of the log were added or removed."""
        self._unflushed_directories[self._directory] = None

    def wrote(self, *paths: str) -> None:
        """Note that small files of the log were written: they must be as durable as the batches."""
        self._unflushed_files |= dict.fromkeys(paths)
        self.names_changed()

    @property
    def is_flushed(self) -> bool:
        """Check whether all files other than segments, and all names, are flushed."""
        return not self._unflushed_files and not self._unflushed_directories

    @property
    def has_sealed_unflushed(self) -> bool:
        """Check whether a sealed segment has not been flushed."""
        sealed = len(self._segments) > 1
        return sealed and self.failure is None and self.recovery_point < self._segments.active.base_offset

    def flush_sealed(self) -> None:
        """Flush the oldest unflushed sealed segment, and move the recovery point to its end."""
        for segment, end in self._segments.sealed_segments():
            if end > self.recovery_point:
                self.attempt(segment.file.flush, end)
                return

    def flush(self, log_end: int) -> None:
        """Flush all segments and leader epochs to the disk. Raises OSError."""
        for segment, end in zip(self._segments, self._segments.ends(log_end), strict=True):
            if end > self.recovery_point:
                segment.file.flush()
        self._flush_rest()
        self.recovery_point = log_end
        self.unflushed = 0

    def attempt(self, flush: Callable[[], None], recovery_point: int = 0) -> None:
        """Call `flush`, flush what belongs to the segments, and advance the recovery point. Raises KafkaError."""
        try:
            flush()
            self._flush_rest()
            self.recovery_point = max(self.recovery_point, recovery_point)
        except OSError as reason:
            self._note_failure(reason)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._directory}: {reason}") from reason

    def flush_names(self) -> None:
        """Flush the names of the log's files after some were removed; a failure is noted, not raised."""
        try:
            self._flush_directories()
        except OSError as reason:
            self._note_failure(reason)

    def _flush_rest(self) -> None:
        """Flush what belongs to the batches. Indexes of segments that were deleted meanwhile are gone."""
        while self._unflushed_files:
            path = next(iter(self._unflushed_files))
            with contextlib.suppress(FileNotFoundError):
                self._files.flush_file(path)
            del self._unflushed_files[path]
        self._epochs.flush()
        self._flush_directories()

    def _flush_directories(self) -> None:
        while self._unflushed_directories:
            directory = next(iter(self._unflushed_directories))
            self._files.flush_directory(directory)
            del self._unflushed_directories[directory]

    def _note_failure(self, reason: OSError) -> None:
        if reason.errno not in NO_ROOM:
            self.failure = f"a flush failed: {reason}"
            log.error("%s takes no more appends: %s", self._directory, self.failure)

    def cut_back(self, offset: int, *, start_lowered: bool = False) -> None:
        """Lower the recovery point after a truncation to `offset`."""
        lowered = start_lowered or self.recovery_point > offset
        self.recovery_point = min(self.recovery_point, offset)
        if lowered and self.on_cut is not None:
            self.on_cut()
