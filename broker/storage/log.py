"""The log of one partition: write, read, roll, truncate, retain, flush.

Batches are stored and served as the bytes that arrived. `log_append` checks them, `log_loader` opens logs, `durability`
flushes them. Everything is synchronous and ends in the page cache.

Invariants: log start <= log end; segments are contiguous, only the last one grows; offsets grow; the epoch cache and
the producer states agree with the batches. A KafkaError leaves the log unchanged.

On a full disk an append fails with KAFKA_STORAGE_ERROR; reads continue, and appends succeed again once there is space.
(Kafka takes the log directory offline and stops with the last one. With one directory per node, a full disk would then
end all service.) Source: Kafka's `UnifiedLog`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from anabranch.broker.storage.durability import Durability
from anabranch.broker.storage.epochs import LeaderEpochCache
from anabranch.broker.storage.files import NO_ROOM, Files
from anabranch.broker.storage.index import RELATIVE_OFFSET_MAX
from anabranch.broker.storage.log_loader import LoadedLog, load_log, newest_snapshot, remove_snapshots, replay
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.producer_snapshot import encode_snapshot, snapshot_path
from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.broker.storage.replicated_run import ReplicatedRun
from anabranch.broker.storage.segments import Segments, TimestampedOffset
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import NO_TIMESTAMP, BatchHeader, Buffer

__all__ = ["LogSettings", "PartitionLog"]

log = logging.getLogger(__name__)


def _unheard() -> None:
    """Ignore the changes of a log without a partition."""


class PartitionLog:
    """One partition's log in one directory, `<topic>-<partition>`."""

    __slots__ = (
        "_files",
        "changed",
        "cleaned_to",
        "clock_ms",
        "directory",
        "durability",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "scanned_segments",
        "segments",
        "settings",
        "touched",
    )

    def __init__(self, files: Files, directory: str, settings: LogSettings, loaded: LoadedLog, now_ms: int) -> None:
        self._files = files
        self.directory = directory
        self.settings = settings
        self.segments: Segments = loaded.segments
        self.epochs: LeaderEpochCache = loaded.epochs
        self.producers: ProducerStates = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.durability = Durability(
            files,
            directory,
            loaded.segments,
            loaded.epochs,
            recovery_point=loaded.recovery_point,
            reached=loaded.reached,
            names_flushed=loaded.names_flushed,
        )
        self.scanned_segments = loaded.scanned_segments
        """Number of segments that were scanned when the log was opened."""
        self.cleaned_to = 0
        """The offset at which compaction continues."""
        self.changed: Callable[[], None] = _unheard
        """Called after a change of the log's end, start or leader epochs."""
        self.touched: Callable[[], None] = _unheard
        """Called after such a change, and after changes of other checkpointed offsets; set by `LogManager`."""
        self.clock_ms = now_ms
        """The latest time that a caller passed; the creation time of a follower's segments."""
        self.producers.begin(now_ms)

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        settings: LogSettings,
        now_ms: int,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        recovery_point_lost: bool = False,
        cleaned_to: int = 0,
        clean: bool = False,
    ) -> PartitionLog:
        """Open the log in a directory, create it if it is missing, and truncate an incomplete end.

        `log_start_offset` is the checkpointed start; the log starts later if its first segment does. The last process
        has flushed the log up to `recovery_point`, compacted it up to `cleaned_to`, and was shut down with `close` if
        `clean` is true. `recovery_point_lost`: the log may have been flushed and compacted further than these say.
        """
        files.make_directory(directory)
        loaded = load_log(
            files,
            directory,
            settings,
            now_ms,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            recovery_point_lost=recovery_point_lost,
            cleaned_to=cleaned_to,
            clean=clean,
        )
        opened = cls(files, directory, settings, loaded, now_ms)
        opened.cleaned_to = min(cleaned_to, opened.log_end_offset)
        return opened

    def __repr__(self) -> str:
        span = f"{self.log_start_offset}..{self.log_end_offset}"
        return f"<log {self.directory} {span} in {len(self.segments)} segments, {self.epochs!r}>"

    @property
    def size_bytes(self) -> int:
        """Return the size of all batches."""
        return self.segments.size_bytes

    # --------------------------------------------------------------------------------------------------------- write

    def write(
        self, header: BatchHeader, size_bytes: int, first_offset: int, leader_epoch: int, *chunks: Buffer
    ) -> None:
        """Store a batch that has its offsets at the log's end, in a new segment if the active one is full.

        The caller has checked the batch, and then updates the producer states. Raises KafkaError.
        """
        last_offset = first_offset + header.last_offset_delta
        settings = self.settings
        durability = self.durability
        if durability.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {durability.failure}")
        try:
            active = self.segments.active
            if active.is_full(last_offset, size_bytes, header.max_timestamp, settings, self.clock_ms):
                # In the gap of a compacted log, a segment begins with the gap: only compaction leaves segments that do
                # not reach the next one, so that a start can tell a lost end from a gap.
                gap = last_offset - self.log_end_offset > RELATIVE_OFFSET_MAX
                self.roll(first_offset if gap else self.log_end_offset)
                active = self.segments.active
            if leader_epoch > self.epochs.latest_epoch or self.epochs.unsaved:
                self.epochs.assign(leader_epoch, first_offset)
            active.append(
                *chunks,
                last_offset=last_offset,
                size_bytes=size_bytes,
                max_timestamp_ms=header.max_timestamp,
                index_interval_bytes=settings.index_interval_bytes,
            )
        except OSError as reason:
            raise self._storage_error(reason) from reason
        durability.unflushed += header.record_count
        self.log_end_offset = last_offset + 1
        self.touched()
        self.changed()

    def write_run(self, run: ReplicatedRun) -> bool:
        """Store a leader's batches with one write; return False, without effect, if they must be written one by one.

        They must if one of them may need a new segment, begins a leader epoch, or completes `flush.messages`, and if
        the write fails: a full disk may have space for some of them. The caller updates the producer states, and calls
        `notify_change`.
        """
        settings, durability, epochs, active = self.settings, self.durability, self.epochs, self.segments.active
        if (
            durability.failure is not None
            or durability.unflushed + run.record_count >= settings.flush_messages
            or epochs.unsaved
            or run.latest_epoch > epochs.latest_epoch
            or not active.takes_run(run.headers, run.size_bytes, run.max_timestamp, settings, self.clock_ms)
        ):
            return False
        try:
            active.append_run(run.view[: run.size_bytes], run.headers, settings.index_interval_bytes)
        except OSError:
            return False
        durability.unflushed += run.record_count
        self.log_end_offset = run.next_offset
        return True

    def notify_change(self) -> None:
        """Call the listeners after a change of the log's end, start or leader epochs."""
        self.touched()
        self.changed()

    def roll(self, base_offset: int) -> None:
        """Seal the active segment, write a producer snapshot, and add a new segment."""
        if len(self.segments):
            self._seal_active()
            self._take_snapshot(base_offset)
        self.segments.add(base_offset, self.clock_ms)
        self.durability.names_changed()

    def _seal_active(self) -> None:
        active = self.segments.active
        aborted = [one for one in self.producers.aborted if one.last_offset >= active.base_offset]
        self.durability.wrote(*active.seal(aborted, flushed=self._is_flushed))

    @property
    def _is_flushed(self) -> bool:
        """Check whether all batches are flushed: a start after a power failure then trusts what belongs to them."""
        return self.recovery_point >= self.log_end_offset

    def _take_snapshot(self, offset: int) -> None:
        path = snapshot_path(self.directory, offset)
        self._files.write_file(path, encode_snapshot(self.producers.entries), flushed=self._is_flushed)
        self.durability.wrote(path)  # compaction may remove the batches that would restore it

    def _storage_error(self, reason: OSError) -> KafkaError:
        if reason.errno not in NO_ROOM:
            log.error("%s: %s", self.directory, reason)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {reason}")

    # ------------------------------------------------------------------------------------------------------------ read

    def read(
        self, offset: int, max_bytes: int, *, limit_offset: int | None = None, min_one_batch: bool = True
    ) -> Buffer:
        """Read whole batches from the one that holds `offset` up to `limit_offset`, exclusive. Raises KafkaError.

        With `min_one_batch` the first batch may exceed `max_bytes`, so that readers make progress.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in {self.log_start_offset}..{end}")
        limit = end if limit_offset is None or limit_offset > end else limit_offset
        if offset >= limit:
            return b""
        try:
            return self.segments.read(offset, max_bytes, limit, end, min_one_batch)
        except OSError as reason:
            raise self._storage_error(reason) from reason

    def size_between(self, offset: int, limit_offset: int) -> int:
        """Return the bytes of the batches from the one that holds `offset` up to `limit_offset`, in one segment.

        Raises KafkaError.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in {self!r}")
        segment = self.segments.holding(offset)
        try:
            return segment.position_of(limit_offset) - segment.position_of(offset)
        except OSError as reason:
            raise self._storage_error(reason) from reason

    def is_empty_between(self, offset: int, limit_offset: int) -> bool:
        """Check whether `read` finds nothing from `offset` on, since compaction has removed it. Raises KafkaError."""
        if offset < self.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in {self!r}")
        try:
            return self.segments.is_empty_between(offset, limit_offset, self.log_end_offset)
        except OSError as reason:
            raise self._storage_error(reason) from reason

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """Return the first record whose timestamp is at least `timestamp_ms`, or None."""
        return self.segments.search(timestamp_ms, self.log_start_offset)

    @property
    def max_timestamp_ms(self) -> int:
        """Return the latest timestamp of the log, -1 if it has none."""
        return max((segment.indexes.max_timestamp_ms for segment in self.segments), default=NO_TIMESTAMP)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset up to which `read_committed` consumers read: the start of the oldest open transaction."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        # The beginning of a long transaction may have been deleted.
        return min(max(first_unstable, self.log_start_offset), high_watermark)

    # ------------------------------------------------------------------------------------------------ truncate, retain

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log to an offset and flush the truncation; return False if the log ends there already.

        Raises OSError if the disk refuses; then the log ends with what is left.
        """
        if offset >= self.log_end_offset:
            # A leader that wrote nothing left an epoch at the end; the next leader may not know this epoch.
            self.epochs.truncate_from_end(self.log_end_offset)
            self.notify_change()
            return False
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        segment = self.segments.holding(offset)
        position = segment.position_of(offset)
        # An offset inside a batch removes the whole batch: nothing could append the missing half.
        cut = next(segment.headers(position), None)
        end = offset if cut is None else min(offset, cut[1].base_offset)
        if end < self.log_start_offset:  # the log starts inside that batch
            self.truncate_fully_and_start_at(self.log_start_offset)
            return True
        # First: a power failure may keep the truncation and restore the removed segments, behind a gap. Below the
        # recovery point, a start would take it for one of compaction.
        self._cut_back(end)
        ends = self.segments.ends(self.log_end_offset)
        shorter = position < segment.file.size_bytes
        try:
            self.segments.drop_above(offset)
            segment.truncate(position, end)
        except OSError:
            if segment is not self.segments.active or position < segment.file.size_bytes:
                end = ends[len(self.segments) - 1]  # more is left than was to be: the next attempt removes the rest
            self._end_at(end)
            raise
        self._end_at(end)
        # Flush before the next append: a power failure would restore old batches and segments among those of later
        # epochs, and snapshots of producers that have never written what they say.
        self.durability.names_changed()
        self.durability.flush_names()
        if shorter:
            self.durability.attempt(segment.file.flush)
        return True

    def _end_at(self, end: int) -> None:
        self.log_end_offset = end
        self.segments.removals += 1
        self.epochs.truncate_from_end(end)
        self._restore_producers()
        self.notify_change()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Delete all records and continue at an offset; if the disk refuses a new file now, a later append makes it.

        Raises OSError if the disk refuses to remove a file; then the log ends with what is left.
        """
        ends = self.segments.ends(self.log_end_offset)
        try:
            self.segments.drop_all()
        except OSError:
            end = ends[len(self.segments) - 1]
            self._cut_back(end)
            self._end_at(end)
            raise
        self.epochs.clear()
        self.producers = ProducerStates()
        self.producers.begin(self.clock_ms)
        start_lowered = offset < self.log_start_offset
        self.log_start_offset = self.log_end_offset = offset
        self.segments.add(offset, self.clock_ms, late=True)
        remove_snapshots(self._files, self.directory, self.segments, -1)
        self._cut_back(0, start_lowered=start_lowered)
        self.durability.names_changed()
        self.durability.flush_names()
        self.notify_change()

    def _cut_back(self, offset: int, *, start_lowered: bool = False) -> None:
        self.cleaned_to = min(self.cleaned_to, offset)
        self.durability.cut_back(offset, start_lowered=start_lowered)

    def _restore_producers(self) -> None:
        aborted = self.producers.aborted
        offset, self.producers = newest_snapshot(self._files, self.directory, self.log_end_offset)
        replay(self.producers, self.segments, offset, aborted)
        self.producers.begin(self.clock_ms)
        remove_snapshots(self._files, self.directory, self.segments, self.log_end_offset)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Delete the records below an offset, itself at most the high watermark; return whether the start moved.

        If the disk refuses to remove files now, retention removes them later.
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the log end offset {self.log_end_offset}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        aborted = self.producers.aborted
        self.producers.aborted = [transaction for transaction in aborted if transaction.last_offset >= offset]
        try:
            if self.segments.drop_below(offset):
                remove_snapshots(self._files, self.directory, self.segments, self.log_end_offset)
        except OSError as reason:
            log.warning("%s: cannot remove segments below offset %d yet: %s", self.directory, offset, reason)
        self.notify_change()
        return True

    def apply_retention(self, now_ms: int, *, high_watermark: int | None = None) -> int:
        """Delete segments below the high watermark by age and size; return their number. Raises OSError."""
        self.clock_ms = self.producers.now_ms = now_ms
        if not self.settings.deletes:
            return 0
        bound = self.log_end_offset if high_watermark is None else high_watermark
        expired = self.segments.count_expired(self.settings, now_ms, log_end=self.log_end_offset, bound=bound)
        sealed = len(self.segments) - 1
        # Delete sealed segments first: on a full disk the roll fails unless they free space.
        self.increment_log_start_offset(self.segments.base_after(min(expired, sealed)))
        self.segments.drop_below(self.log_start_offset)
        if expired > sealed:
            self.roll(self.log_end_offset)
            self.increment_log_start_offset(self.log_end_offset)
        return expired

    def expire_producers(self, now_ms: int) -> None:
        """Remove producers without an open transaction that have not written for `producer_id_expiration_ms`."""
        self.producers.expire(now_ms, self.settings.producer_id_expiration_ms)

    # ---------------------------------------------------------------------------------------------------- flush, close

    @property
    def recovery_point(self) -> int:
        """Return the offset below which everything has been flushed."""
        return self.durability.recovery_point

    def flush(self) -> None:
        """Flush everything to the disk. Raises OSError."""
        self.durability.flush(self.log_end_offset)

    def close(self) -> None:
        """Flush, write indexes and the producer snapshot, and close the files. Raises OSError."""
        try:
            if self.durability.failure is not None:
                raise OSError(self.durability.failure)
            if not self.segments.active.is_sealed:
                self._seal_active()
                self._take_snapshot(self.log_end_offset)
                remove_snapshots(self._files, self.directory, self.segments, self.log_end_offset)
            if self.recovery_point < self.log_end_offset or not self.durability.is_flushed:
                self.flush()
        finally:
            self.segments.close()

    def delete(self) -> None:
        """Remove the log with its directory."""
        self.segments.close()
        self._files.remove_directory(self.directory)
