"""Schedules compaction: chooses the log that is cleaned next, and runs its cleaning in steps.

The dirtiest log comes first. Its cleaning begins when all of its sealed segments are flushed, and its recovery point is
on the disk. A log with a damaged batch is not cleaned again before a restart. A log whose directory refuses a write is
retried after all others.

Invariant: at most one cleaning runs, and never of a log that moves to another directory. `cleaner` does the work on one
log. Source: Kafka's `LogCleaner` and `LogCleanerManager` (`grabFilthiestCompactedLog`, `abortCleaning`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from anabranch.broker.storage.cleaner import Cleaning, cleanable_part, is_worth_cleaning
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.broker.storage.log import PartitionLog
    from anabranch.broker.storage.log_directory import Key, LogDirectory

log = logging.getLogger(__name__)


class LogCleaner:
    """The compacted logs of a broker, and the one that is being cleaned."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._logs: dict[Key, tuple[PartitionLog, LogDirectory]] = {}
        self._cleaning: Cleaning | None = None
        self._uncleanable: set[PartitionLog] = set()
        self._cleaned_later: set[PartitionLog] = set()

    def add(self, key: Key, opened: PartitionLog, home: LogDirectory) -> None:
        """Clean a partition's log from now on, if its topic is compacted."""
        if opened.settings.compacts:
            self._logs[key] = opened, home
        else:
            self.remove(key)

    def remove(self, key: Key) -> None:
        """Begin no more cleaning of a partition's log; `abort` ends the one that runs."""
        self._logs.pop(key, None)

    def abort(self, opened: PartitionLog) -> None:
        """Abandon the cleaning of a log, if it is the one that runs."""
        if self._cleaning is not None and opened is self._cleaning.log:
            self._cleaning.abandon()
            self._cleaning = None

    def close(self) -> None:
        """Abandon the running cleaning, and remove all logs."""
        if self._cleaning is not None:
            self.abort(self._cleaning.log)
        self._logs.clear()

    def step(self, high_watermark: Callable[[Key], int], moving: Container[Key]) -> bool:
        """Run one step of compaction on the dirtiest log; return whether another step may follow immediately.

        `moving`: the partitions whose logs are copied to another directory. A log that fails with OSError is retried
        after all others.
        """
        cleaning = self._cleaning
        if cleaning is None:
            return self._begin(high_watermark, moving)
        try:
            if not cleaning.step():
                self._cleaning = None
                cleaning.log.touched()
        except KafkaError as damage:
            log.error("%s: no more compaction until a restart: %s", cleaning.log.directory, damage)
            self._uncleanable.add(cleaning.log)
            self._cleaning = None
        except OSError as reason:
            log.warning("%s: cannot compact yet: %s", cleaning.log.directory, reason)
            self._cleaned_later.add(cleaning.log)
            self._cleaning = None
        return True

    def _begin(self, high_watermark: Callable[[Key], int], moving: Container[Key]) -> bool:
        """Begin with the dirtiest log when all of its sealed segments are flushed; return whether there is one.

        Compaction removes a record because there is a later one: a power failure must not take the later one, too.
        And only below a recovery point on the disk may the next start find gaps.
        """
        found = self._dirtiest(high_watermark, moving)
        if found is None:
            self._cleaned_later.clear()
            return False
        key, cleaning = found
        opened, home = self._logs[key]
        try:
            if opened.durability.has_sealed_unflushed:
                opened.durability.flush_sealed()
                return True
            home.recovery_points.put(key, opened.recovery_point)
            home.recovery_points.write()
        except (KafkaError, OSError) as reason:
            log.warning("%s: cannot compact yet: %s", opened.directory, reason)
            self._cleaned_later.add(opened)
            opened.changed()
            return True
        self._cleaning = cleaning
        return True

    def _dirtiest(self, high_watermark: Callable[[Key], int], moving: Container[Key]) -> tuple[Key, Cleaning] | None:
        now_ms = self._clock_ms()
        left_out = self._uncleanable | self._cleaned_later
        dirty = []
        for key, (opened, home) in self._logs.items():
            if max(opened.cleaned_to, opened.log_start_offset) >= opened.segments.active.base_offset:
                continue  # no sealed segment is dirty, as in most of what may be thousands of logs
            if opened in left_out or key in moving:
                continue
            dirt = cleanable_part(opened, high_watermark(key), now_ms)
            if is_worth_cleaning(opened, dirt):
                dirty.append((dirt.ratio, dirt, opened, home, key))
        if not dirty:
            return None
        _, dirt, opened, home, key = max(dirty, key=lambda one: one[0])
        return key, Cleaning(home.files, opened, dirt, now_ms)
