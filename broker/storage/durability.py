"""What a power failure leaves of one log: how far it has been flushed, and whether more can still be promised.

Invariants: what lies below the recovery point has been flushed, and the leader epochs with it; a log that was cut below
its recovery point says so before anything follows.

When a flush finds the disk full it may succeed later. Any other failure is the last one: the kernel may have dropped
what it could not write, so the log takes no more appends until it is opened and scanned again.
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
    """Flushes the segments and the leader epochs of one log, and knows what was flushed."""

    __slots__ = ("_directory", "_epochs", "_segments", "failure", "on_cut", "reached", "recovery_point", "unflushed")

    def __init__(
        self, directory: str, segments: Segments, epochs: LeaderEpochCache, recovery_point: int, reached: int = 0
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self.recovery_point = recovery_point
        """Everything below has been flushed."""
        self.unflushed = 0
        """How many records were appended since the last flush of everything."""
        self.failure: str | None = None
        """Why the log takes no more appends."""
        self.reached = reached
        """How far the log went once, if that is known to be further than it went when it was opened; otherwise 0."""
        self.on_cut: Callable[[], None] | None = None
        """Called when the log ends before its recovery point, which must not be believed any more."""

    @property
    def has_sealed_unflushed(self) -> bool:
        """Whether `flush_sealed` has something to do."""
        sealed = len(self._segments) > 1
        return sealed and self.failure is None and self.recovery_point < self._segments.active.base_offset

    def flush_sealed(self) -> None:
        """Flush the oldest sealed segment that was not, and move the recovery point behind it: one step of work."""
        for segment, end in self._segments.sealed():
            if end > self.recovery_point:
                self.attempt(segment.file.flush, end)
                return

    def flush(self, log_end: int) -> None:
        """Come back when everything survives a power failure. Raises OSError."""
        for segment, end in zip(self._segments, self._segments.ends(log_end), strict=True):
            if end > self.recovery_point:
                segment.file.flush()
        self._epochs.flush()
        self.recovery_point = log_end
        self.unflushed = 0

    def attempt(self, flush: Callable[[], None], recovery_point: int = 0) -> None:
        """Flush in the middle of other work: everything below `recovery_point` then survives. Raises KafkaError."""
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
        """The log ends at `offset` now: what was flushed beyond it is not there any more."""
        if self.recovery_point > offset:
            self.recovery_point = offset
            if self.on_cut is not None:
                self.on_cut()
