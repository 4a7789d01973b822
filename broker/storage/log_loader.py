"""Loads the log of a directory: trusts flushed segments, scans the rest, and truncates at the first invalid batch.

Trusted segments are sealed and below the recovery point, so they were flushed; after a clean shutdown the last segment
is trusted too. Their indexes and their ends are checked. From the first segment that fails this check, and from the
recovery point on, everything is scanned with its checksums. The log ends before the first invalid batch, or before the
first gap that compaction cannot have made; all later batches are removed, since they would follow a gap. A follower
fetches them again.

Producer states come from the newest snapshot and the batches after it. Interrupted compaction is
finished if the new segment is complete, and otherwise undone. A full disk does not prevent loading.
Source: Kafka's `LogLoader`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from anabranch.broker.storage.aborted_transactions import AbortedTransaction
from anabranch.broker.storage.epochs import CHECKPOINT_NAME, EpochEntry, LeaderEpochCache, parse_checkpoint
from anabranch.broker.storage.files import Files
from anabranch.broker.storage.index import RELATIVE_OFFSET_MAX
from anabranch.broker.storage.log_settings import INT64_MAX, LogSettings
from anabranch.broker.storage.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from anabranch.broker.storage.producer_snapshot import decode_snapshot, snapshot_path
from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.broker.storage.segment import SUFFIXES, Segment, segment_path
from anabranch.broker.storage.segments import Segments
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import BatchHeader, Buffer
from anabranch.protocol.records.control import ControlRecord, read_control
from anabranch.protocol.values import slotted

log = logging.getLogger(__name__)

_OFFSET_DIGITS: Final = 20
_NO_END: Final = 2**63
_SPAN_MAX: Final = RELATIVE_OFFSET_MAX - 2**20
"""A segment with more offsets begins behind a gap that is too long for the segment before (`PartitionLog.roll`)."""


@slotted(kw_only=True)
class LoadedLog:
    """The parts of a log that was read from its directory."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStates
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    scanned_segments: int
    names_flushed: bool = False
    """Whether the names of all files are known to be flushed: an earlier process has closed the log."""
    reached: int = 0
    """An offset beyond the end that the log is known to have reached; 0 if nothing is missing."""


def load_log(
    files: Files,
    directory: str,
    settings: LogSettings,
    now_ms: int,
    *,
    log_start_offset: int,
    recovery_point: int,
    recovery_point_lost: bool = False,
    cleaned_to: int = 0,
    clean: bool,
) -> LoadedLog:
    """Load the log of a directory. Raises OSError."""
    finish_compaction(files, directory, now_ms)
    loader = _Loader(files, directory, settings, now_ms)
    bases = _bases_and_strays(files, directory)
    trusted = loader.load_trusted(bases, recovery_point, clean)
    loader.restore_producers()
    contiguous_from = recovery_point  # compaction begins when its recovery point is on the disk
    if recovery_point_lost:
        contiguous_from = INT64_MAX if settings.compacts and not cleaned_to else cleaned_to
    loader.scan(bases[trusted:], contiguous_from, recovery_point)
    return loader.finish(
        log_start_offset,
        recovery_point,
        scanned=len(bases) - trusted,
        closed=bool(bases) and trusted == len(bases),
    )


def finish_compaction(files: Files, directory: str, now_ms: int) -> None:
    """Replace segments by complete compacted ones, and remove other files of compaction and deletion."""
    names = files.names(directory)
    for name in names:
        if name.endswith(".log.swap"):
            segment = Segment(files, directory, int(name[:_OFFSET_DIGITS]), now_ms, ".swap")
            end = max((header.next_offset for _, header in segment.headers()), default=segment.base_offset + 1)
            for replaced in _bases(names):
                if segment.base_offset <= replaced < end:
                    _remove_files(files, directory, replaced)
            log.info("%s: finishing the compaction into the segment at %d", directory, segment.base_offset)
            segment.rename("")
            segment.close()
    for name in files.names(directory):
        if name.endswith((".cleaned", ".swap", ".deleted")):
            files.remove(f"{directory}/{name}")


def newest_snapshot(files: Files, directory: str, up_to: int) -> tuple[int, ProducerStates]:
    """Return offset and states of the newest valid snapshot at or below `up_to`; offset -1 if there is none."""
    states = ProducerStates()
    for offset in reversed(snapshot_offsets(files, directory)):
        if offset <= up_to:
            try:
                states.restore(decode_snapshot(files.read_file(snapshot_path(directory, offset)) or b""))
            except ValueError as reason:
                log.warning("%s: ignoring the damaged snapshot at %d: %s", directory, offset, reason)
            else:
                return offset, states
    return -1, states


def snapshot_offsets(files: Files, directory: str) -> list[int]:
    """Return the offsets of the producer snapshots, in ascending order."""
    names = (name.removesuffix(SNAPSHOT_SUFFIX) for name in files.names(directory) if name.endswith(SNAPSHOT_SUFFIX))
    return sorted(int(name) for name in names if name.isdigit())


def replay(producers: ProducerStates, segments: Segments, start_offset: int, aborted: list[AbortedTransaction]) -> None:
    """Update producer states from `start_offset` to the log end; keep `aborted` transactions that ended before it."""
    producers.aborted = [one for one in aborted if one.last_offset < start_offset]
    for segment, end in zip(segments, segments.ends(_NO_END), strict=True):
        if end > start_offset:
            for position, header in segment.headers(segment.position_of(start_offset)):
                note_stored(producers, segment, position, header)


def note_stored(producers: ProducerStates, segment: Segment, position: int, header: BatchHeader) -> None:
    """Update the producer state by a batch that was read from a segment."""
    if header.producer_id >= 0:
        control = stored_control_of(segment.read_batch(position, header), header) if header.is_control else None
        producers.note(header, header.base_offset, control)


def control_of(batch: Buffer, header: BatchHeader) -> ControlRecord | None:
    """Return the control record of a batch; None if compaction has removed it. Raises DecodeError."""
    return read_control(batch) if header.record_count else None


def produced_control_of(batch: Buffer, header: BatchHeader) -> ControlRecord | None:
    """Return the control record of a batch to be appended. Raises KafkaError if it is unreadable."""
    try:
        return control_of(batch, header)
    except DecodeError as reason:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(reason)) from None


def stored_control_of(batch: Buffer, header: BatchHeader) -> ControlRecord | None:
    """Return the control record of a batch that a log already holds; None if it is missing or unreadable."""
    try:
        return control_of(batch, header)
    except DecodeError as reason:
        log.error("skipping the unreadable control batch at offset %d: %s", header.base_offset, reason)
        return None


class _Loader:
    def __init__(self, files: Files, directory: str, settings: LogSettings, now_ms: int) -> None:
        self._files = files
        self._directory = directory
        self._settings = settings
        self._now_ms = now_ms
        self._segments = Segments(files, directory)
        self._log_end_offset = 0
        self._reached = 0
        self._aborted: list[AbortedTransaction] = []
        self._scanned: list[Segment] = []
        path = f"{directory}/{CHECKPOINT_NAME}"
        known = _read_epochs(files, path)
        self._knows_epochs = known is not None
        self._epochs = LeaderEpochCache(known or (), _writer(files, path), _flusher(files, path))
        self._producers = ProducerStates()
        self._snapshot_offset = -1

    def load_trusted(self, bases: list[int], recovery_point: int, clean: bool) -> int:
        """Load trusted segments up to the first one that must be scanned; return their number."""
        if not self._knows_epochs:
            return 0
        for slot, base_offset in enumerate(bases):
            sealed = slot < len(bases) - 1
            end = bases[slot + 1] if sealed else recovery_point
            if end > recovery_point or not (sealed or clean):
                return slot
            segment = self._segments.add(base_offset, self._now_ms)
            next_offset = segment.load()
            try:
                if next_offset is None or next_offset > end or (not sealed and next_offset != recovery_point):
                    raise ValueError("its indexes do not match its file")
                self._aborted += segment.load_aborted(end)
            except ValueError as reason:
                log.warning("%s: scanning the segment at %d: %s", self._directory, base_offset, reason)
                self._segments.forget_last()
                return slot
            self._log_end_offset = end
        return len(bases)

    def restore_producers(self) -> None:
        """Restore producer states from the newest snapshot and the trusted segments."""
        self._snapshot_offset, self._producers = newest_snapshot(self._files, self._directory, self._log_end_offset)
        replay(self._producers, self._segments, self._snapshot_offset, self._aborted)

    def scan(self, bases: list[int], contiguous_from: int, recovery_point: int) -> None:
        """Scan the remaining segments batch by batch, and truncate the log at the first invalid batch.

        A segment that ends above `contiguous_from` was never compacted. If it does not reach the next one, a power
        failure has lost its end, while the kernel had written the next one.
        """
        if bases:
            self._epochs.distrust_from(recovery_point)
        for slot, base_offset in enumerate(bases):
            segment = self._segments.add(base_offset, self._now_ms)
            written_bytes = segment.file.size_bytes
            self._log_end_offset = max(base_offset, self._log_end_offset)
            following = bases[slot + 1 :]
            promised = segment.promised_end(following[0]) if following else base_offset
            for position, header in segment.recover(
                index_interval_bytes=self._settings.index_interval_bytes,
                limit_offset=following[0] if following else None,
            ):
                self._epochs.replay(header.partition_leader_epoch, header.base_offset)
                note_stored(self._producers, segment, position, header)
                self._log_end_offset = header.next_offset
            self._scanned.append(segment)
            lost_bytes = written_bytes - segment.file.size_bytes
            complete = bool(following) and self._log_end_offset == following[0]
            gap = bool(following) and contiguous_from < following[0] <= base_offset + _SPAN_MAX
            if not complete and (gap or lost_bytes or promised > self._log_end_offset):
                held = self._log_end_offset + 1 if segment.held_more else 0
                self._reached = max(held, promised, *following[-1:])
                self._cut(lost_bytes, following)
                return

    def _cut(self, lost_bytes: int, following: list[int]) -> None:
        log.log(
            logging.ERROR if following else logging.WARNING,
            "%s: truncated the log to %d, where damage begins: %d bytes and %d later segments are removed",
            self._directory,
            self._log_end_offset,
            lost_bytes,
            len(following),
        )
        for base_offset in following:
            _remove_files(self._files, self._directory, base_offset)

    def finish(self, log_start_offset: int, recovery_point: int, *, scanned: int, closed: bool) -> LoadedLog:
        """Adjust start, end, epochs and snapshots to the segments found, and return the log."""
        segments = self._segments
        if not len(segments):
            segments.add(log_start_offset, self._now_ms)
            self._log_end_offset = log_start_offset
        start = max(log_start_offset, segments.first_offset)
        if start > self._log_end_offset:  # the records before the start were removed with the torn end
            closed = False
            segments.drop_all()
            segments.add(start, self._now_ms)
            self._producers = ProducerStates()
            self._log_end_offset = start
            self._epochs.clear()
        end = self._log_end_offset
        if scanned:
            self._restore_scanned_producers(end)
        self._producers.aborted = [one for one in self._producers.aborted if one.last_offset >= start]
        if remove_snapshots(self._files, self._directory, segments, end):
            self._files.flush_directory(self._directory)
        self._seal_scanned(end)
        self._epochs.truncate_from_end(end)
        returned = self._epochs_of_returned(start)
        # A full disk may have refused the checkpoint when the log began anew here: older epochs end before this start.
        self._epochs.truncate_from_start(start)
        if self._epochs.entries and (returned or self._scanned or not self._knows_epochs):
            self._epochs.save_if_possible()
        return LoadedLog(
            segments=segments,
            epochs=self._epochs,
            producers=self._producers,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=min(recovery_point, end) if scanned else end,
            scanned_segments=scanned,
            names_flushed=closed,
            reached=self._reached if self._reached > end else 0,
        )

    def _restore_scanned_producers(self, end: int) -> None:
        """Restore producer states from a snapshot in the scanned part: compaction may have removed their batches."""
        aborted = self._producers.aborted
        offset, producers = newest_snapshot(self._files, self._directory, end)
        if offset > self._snapshot_offset:
            self._producers = producers
            replay(producers, self._segments, offset, aborted)

    def _epochs_of_returned(self, start: int) -> bool:
        """Restore the epochs of deleted records that a crash brought back; return whether there are any.

        A deletion moves the log's start and the first epoch to one offset, but writes the epoch immediately and the
        start with the next checkpoint. After a kill in between, the records exist again. Without their epochs,
        followers and gates would learn that every older epoch ended after these records.
        """
        epochs = self._epochs
        first = epochs.entries[0].start_offset if epochs.entries else self._log_end_offset
        if start >= first:
            return False
        returned = [
            (header.partition_leader_epoch, max(header.base_offset, start))
            for segment, end in zip(self._segments, self._segments.ends(self._log_end_offset), strict=True)
            if segment.base_offset < first and start < end
            for _, header in takewhile(
                lambda batch: batch[1].base_offset < first, segment.headers(segment.position_of(start))
            )
        ]
        epochs.replay_earlier(returned)
        return bool(returned)

    def _seal_scanned(self, log_end: int) -> None:
        """Write the indexes of scanned segments that will not change, so that the next start can trust them."""
        aborted = self._producers.aborted
        for segment, end in zip(self._segments, self._segments.ends(log_end), strict=True):
            if segment in self._scanned and segment is not self._segments.active:
                try:
                    segment.seal([one for one in aborted if segment.base_offset <= one.last_offset < end], flushed=True)
                except OSError as reason:
                    log.warning("%s: cannot write the indexes of a segment: %s", self._directory, reason)
                    return


def remove_snapshots(files: Files, directory: str, segments: Segments, log_end: int) -> bool:
    """Delete snapshots after the log end, and others except the newest and those at segment bases.

    Truncation restores producer states from a snapshot at a segment base. Return whether some were after the log end:
    a power failure must not bring them back when the log is as long again, with other batches.
    """
    offsets = snapshot_offsets(files, directory)
    bases = {segment.base_offset for segment in segments}
    newest = max((offset for offset in offsets if offset <= log_end), default=-1)
    for offset in offsets:
        if offset > log_end or (offset not in bases and offset != newest):
            files.remove(snapshot_path(directory, offset))
    return bool(offsets) and offsets[-1] > log_end


def _bases_and_strays(files: Files, directory: str) -> list[int]:
    names = files.names(directory)
    bases = _bases(names)
    known = set(bases)
    for name in names:
        offset, _, suffix = name.partition(".")
        if suffix in SUFFIXES and offset.isdigit() and int(offset) not in known:
            files.remove(f"{directory}/{name}")
    return bases


def _bases(names: list[str]) -> list[int]:
    heads = (name.removesuffix(".log") for name in names if name.endswith(".log"))
    return sorted(int(head) for head in heads if head.isdigit())


def _remove_files(files: Files, directory: str, base_offset: int) -> None:
    for suffix in reversed(SUFFIXES):
        files.remove(segment_path(directory, base_offset, suffix))


def _read_epochs(files: Files, path: str) -> list[EpochEntry] | None:
    """Return the checkpoint's entries; None if it is missing or damaged: a scan restores nearly all of them."""
    try:
        return parse_checkpoint(files.read_file(path) or b"")
    except ValueError:
        return None


def _writer(files: Files, path: str) -> Callable[[bytes], None]:
    return lambda content: files.write_file(path, content)


def _flusher(files: Files, path: str) -> Callable[[], None]:
    def flush() -> None:
        files.flush_file(path)
        files.flush_directory(path.rpartition("/")[0])

    return flush
