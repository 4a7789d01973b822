"""Flushes one log and keeps its recovery point.

Invariants: everything below the recovery point, and its leader epochs, has been flushed; a truncation below the
recovery point is reported by `on_cut` before the next append.

A flush that fails because the disk is full can be retried. Any other failure is permanent: the kernel may have dropped
dirty pages, so the log refuses appends until it is opened and scanned again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from anabranch.broker.storage.epochs import LeaderEpochCache
from anabranch.broker.storage.files import NO_ROOM
from anabranch.broker.storage.segments import Segments
from anabranch.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)


class Durability:
    """Flushes the segments and leader epochs of one log, and keeps its recovery point."""

    __slots__ = ("_directory", "_epochs", "_segments", "failure", "on_cut", "reached", "recovery_point", "unflushed")

    def __init__(
        self, directory: str, segments: Segments, epochs: LeaderEpochCache, recovery_point: int, reached: int = 0
    ) -> None:
        self._directory = directory
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
        """Called after a truncation below the recovery point; the checkpointed value has become wrong."""

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
        self._epochs.flush()
        self.recovery_point = log_end
        self.unflushed = 0

    def attempt(self, flush: Callable[[], None], recovery_point: int = 0) -> None:
        """Call `flush`, flush the leader epochs, and advance the recovery point. Raises KafkaError."""
        try:
            flush()
            self._epochs.flush()
            self.recovery_point = max(self.recovery_point, recovery_point)
        except OSError as reason:
            if reason.errno not in NO_ROOM:
                self.failure = f"a flush failed: {reason}"
                log.error("%s takes no more appends: %s", self._directory, self.failure)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._directory}: {reason}") from reason

    def cut_back(self, offset: int) -> None:
        """Lower the recovery point after a truncation to `offset`."""
        if self.recovery_point > offset:
            self.recovery_point = offset
            if self.on_cut is not None:
                self.on_cut()
