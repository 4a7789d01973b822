"""From the files of a directory to a log: what is trusted, what is scanned, what is cut off.

Trusted as they are: sealed segments below the recovery point (they were flushed), and after a clean stop the last one
too. Each shows by its indexes and its end whether it still is what was flushed; from the first one that is not, and
from the recovery point on, everything is scanned with its checksums. The log ends before the first batch that is not
sound, and what follows it is removed: it could not be served without a hole. A follower fetches it again.

Producers come from the newest snapshot before the scan, and the batches behind it. Compaction that was interrupted is
undone, or finished where the new segment was complete. A full disk does not keep a log from opening.
Reference: `LogLoader` of Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from anabranch.broker.storage.aborted_transactions import AbortedTransaction
from anabranch.broker.storage.epochs import CHECKPOINT_NAME, EpochEntry, LeaderEpochCache, parse_checkpoint
from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from anabranch.broker.storage.producer_snapshot import decode_snapshot, snapshot_path
from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.broker.storage.segment import SUFFIXES, Segment, segment_path
from anabranch.broker.storage.segments import Segments
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import BatchHeader, Buffer
from anabranch.protocol.records.control import ControlRecord, read_control

log = logging.getLogger(__name__)

_OFFSET_DIGITS: Final = 20
_NO_END: Final = 2**63


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """The parts of a log as read from its directory."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStates
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    scanned_segments: int
    reached: int = 0
    """Beyond the end if it is known that the log ended there, or later, once; 0 if nothing is missing."""


def load_log(
    files: Files,
    directory: str,
    settings: LogSettings,
    now_ms: int,
    *,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
) -> LoadedLog:
    """Open the log of a directory. Raises OSError when it cannot be read."""
    finish_compaction(files, directory, now_ms)
    loader = _Loader(files, directory, settings, now_ms)
    bases = _bases_and_strays(files, directory)
    trusted = loader.load_trusted(bases, recovery_point, clean)
    loader.restore_producers()
    loader.scan(bases[trusted:])
    return loader.finish(log_start_offset, recovery_point, scanned=len(bases) - trusted)


def finish_compaction(files: Files, directory: str, now_ms: int) -> None:
    """Put complete new segments into their places, and remove what else compaction and deletion left behind."""
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
    """The producers at an offset that is not above another one; none, at -1, if there is no sound snapshot."""
    states = ProducerStates()
    for offset in reversed(snapshot_offsets(files, directory)):
        if offset <= up_to:
            try:
                states.restore(decode_snapshot(files.read_file(snapshot_path(directory, offset)) or b""))
            except ValueError as reason:
                log.warning("%s: the snapshot at %d is passed over: %s", directory, offset, reason)
            else:
                return offset, states
    return -1, states


def snapshot_offsets(files: Files, directory: str) -> list[int]:
    """The offsets at which there are snapshots, growing."""
    names = (name.removesuffix(SNAPSHOT_SUFFIX) for name in files.names(directory) if name.endswith(SNAPSHOT_SUFFIX))
    return sorted(int(name) for name in names if name.isdigit())


def replay(producers: ProducerStates, segments: Segments, start_offset: int, aborted: list[AbortedTransaction]) -> None:
    """Bring producers from an offset to the log's end; `aborted` are the known transactions, taken where they ended."""
    producers.aborted = [one for one in aborted if one.last_offset < start_offset]
    for segment, end in zip(segments, segments.ends(_NO_END), strict=True):
        if end > start_offset:
            for position, header in segment.headers(segment.position_of(start_offset)):
                note_stored(producers, segment, position, header)


def note_stored(producers: ProducerStates, segment: Segment, position: int, header: BatchHeader) -> None:
    """Remember the producer of a batch that was read back."""
    if header.producer_id >= 0:
        control = stored_control_of(segment.read_batch(position, header), header) if header.is_control else None
        producers.note(header, header.base_offset, control)


def control_of(batch: Buffer, header: BatchHeader) -> ControlRecord | None:
    """What a control batch says; None if compaction has emptied it. Raises DecodeError."""
    return read_control(batch) if header.record_count else None


def stored_control_of(batch: Buffer, header: BatchHeader) -> ControlRecord | None:
    """The same of a batch that is in some log already: one that cannot be read is passed over."""
    try:
        return control_of(batch, header)
    except DecodeError as reason:
        log.error("the control batch at offset %d is passed over, it cannot be read: %s", header.base_offset, reason)
        return None


class _Loader:
    """The steps of `load_log`, and what they have found so far."""

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
        self._epochs = LeaderEpochCache(known or (), _writer(files, path), lambda: files.flush_file(path))
        self._producers = ProducerStates()

    def load_trusted(self, bases: list[int], recovery_point: int, clean: bool) -> int:
        """Take segments as they were left, up to the first one that has to be scanned; how many were taken."""
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
                    raise ValueError("its indexes do not fit")
                self._aborted += segment.load_aborted()
            except ValueError as reason:
                log.warning("%s: scanning the segment at %d: %s", self._directory, base_offset, reason)
                self._segments.forget_last()
                return slot
            self._log_end_offset = end
        return len(bases)

    def restore_producers(self) -> None:
        """Read the state of producers from the trusted segments."""
        offset, self._producers = newest_snapshot(self._files, self._directory, self._log_end_offset)
        replay(self._producers, self._segments, offset, self._aborted)

    def scan(self, bases: list[int]) -> None:
        """Read the remaining segments batch by batch, and cut the log where it is not sound."""
        for slot, base_offset in enumerate(bases):
            segment = self._segments.add(base_offset, self._now_ms)
            written_bytes = segment.file.size_bytes
            self._log_end_offset = max(base_offset, self._log_end_offset)
            following = bases[slot + 1 :]
            promised = segment.promised_end(following[0]) if following else base_offset
            for position, header in segment.recover(
                index_interval_bytes=self._settings.index_interval_bytes,
                verify=True,
                limit_offset=following[0] if following else None,
            ):
                self._epochs.replay(header.partition_leader_epoch, header.base_offset)
                note_stored(self._producers, segment, position, header)
                self._log_end_offset = header.next_offset
            self._scanned.append(segment)
            lost_bytes = written_bytes - segment.file.size_bytes
            complete = bool(following) and self._log_end_offset == following[0]
            if not complete and (lost_bytes or promised > self._log_end_offset):
                held = self._log_end_offset + 1 if segment.held_more else 0
                self._reached = max(held, promised, *following[-1:])
                self._cut(lost_bytes, following)
                return

    def _cut(self, lost_bytes: int, following: list[int]) -> None:
        log.log(
            logging.ERROR if following else logging.WARNING,
            "%s: the log ends at %d now: what follows is not sound; %d bytes and %d later segments are removed",
            self._directory,
            self._log_end_offset,
            lost_bytes,
            len(following),
        )
        for base_offset in following:
            _remove_files(self._files, self._directory, base_offset)

    def finish(self, log_start_offset: int, recovery_point: int, *, scanned: int) -> LoadedLog:
        """Bring start, end, epochs and snapshots into line with what was found."""
        segments = self._segments
        if not len(segments):
            segments.add(log_start_offset, self._now_ms)
            self._log_end_offset = log_start_offset
        start = max(log_start_offset, segments.first_offset)
        if start > self._log_end_offset:  # the records it points behind are gone with the torn end
            segments.drop_all()
            segments.add(start, self._now_ms)
            self._producers = ProducerStates()
            self._log_end_offset = start
            self._epochs.clear()
        end = self._log_end_offset
        self._producers.aborted = [one for one in self._producers.aborted if one.last_offset >= start]
        remove_snapshots(self._files, self._directory, segments, end)
        self._seal_scanned(end)
        self._epochs.truncate_from_end(end)
        returned = self._epochs_of_returned(start)
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
            reached=self._reached if self._reached > end else 0,
        )

    def _epochs_of_returned(self, start: int) -> bool:
        """Learn the epochs of records that were deleted and are back; whether there are any.

        A deletion moves the log's start and the first epoch to one offset, but on the disk the first epoch is there at
        once and the start with the next checkpoint. A process that is killed in between finds the records again, and
        without their epochs it would tell followers and gates that every older epoch ended behind them.
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
        """Write the indexes of scanned segments that will not change, so that the next life can trust them."""
        aborted = self._producers.aborted
        for segment, end in zip(self._segments, self._segments.ends(log_end), strict=True):
            if segment in self._scanned and segment is not self._segments.active:
                try:
                    segment.seal([one for one in aborted if segment.base_offset <= one.last_offset < end])
                except OSError as reason:
                    log.warning("%s: the indexes of a segment remain unwritten: %s", self._directory, reason)
                    return


def remove_snapshots(files: Files, directory: str, segments: Segments, log_end: int) -> None:
    """Keep snapshots at the bases of segments (truncation goes back to them) and the newest; none behind the end."""
    offsets = snapshot_offsets(files, directory)
    bases = {segment.base_offset for segment in segments}
    newest = max((offset for offset in offsets if offset <= log_end), default=-1)
    for offset in offsets:
        if offset > log_end or (offset not in bases and offset != newest):
            files.remove(snapshot_path(directory, offset))


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
    """The checkpoint's entries; None if it is missing or damaged, as the batches tell nearly all of it again."""
    try:
        return parse_checkpoint(files.read_file(path) or b"")
    except ValueError:
        return None


def _writer(files: Files, path: str) -> Callable[[bytes], None]:
    return lambda content: files.write_file(path, content)
