"""Compaction of one log, in steps short enough to run between two requests.

A pass reads the dirty part of the log into a map (key -> newest offset). Then it copies each group of sealed segments
without superfluous records, and replaces the group by the copy. `Cleaning.step` does a bounded part of a pass; between
two steps the log may be appended to, read, truncated or retained. If batches are removed meanwhile, the pass is
abandoned and its unfinished copy deleted.

A crash is safe at every point. The copy is written as `.cleaned` and flushed, then renamed to `.swap`, the log file
last. From then on it replaces the originals, and after a crash `log_loader.finish_compaction` completes the swap. The
active segment is never compacted. `log_cleaner` chooses the log. Source: Kafka's `Cleaner`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from anabranch.broker.storage.aborted_transactions import CleanedTransactions
from anabranch.broker.storage.compaction import BatchFilter, OffsetMap, last_of_producers
from anabranch.broker.storage.index import RELATIVE_OFFSET_MAX
from anabranch.broker.storage.segment import Segment
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import BatchHeader, check_crc, read_header

if TYPE_CHECKING:
    from anabranch.broker.storage.files import Files
    from anabranch.broker.storage.log import PartitionLog

log = logging.getLogger(__name__)

STEP_BYTES: Final = 64 * 1024
"""The size of the batches that one step reads: some milliseconds of work."""


PARTS_AT_ONCE: Final = 8
"""The number of parts of a long batch that one step processes, of some hundred records each."""
Outcome = TypeVar("Outcome")


class CleanableLog(NamedTuple):
    """The clean and dirty parts of a log before a pass."""

    start: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether a dirty record is older than `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """Return the dirty share of the bytes that a pass would read, between 0 and 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable_part(one: PartitionLog, high_watermark: int, now_ms: int) -> CleanableLog:
    """Return the cleanable part: sealed segments below the last stable offset, older than `min.compaction.lag.ms`."""
    settings = one.settings
    start = max(one.cleaned_to, one.log_start_offset)
    bound = min(one.last_stable_offset(high_watermark), one.segments.active.base_offset)
    clean_bytes = dirty_bytes = 0
    end, first_dirty_ms = start, now_ms
    for segment, segment_end in zip(one.segments, one.segments.ends(one.log_end_offset), strict=True):
        if segment_end <= start:
            clean_bytes += segment.file.size_bytes
            continue
        too_young = settings.min_compaction_lag_ms > 0 and (
            segment.indexes.max_timestamp_ms > now_ms - settings.min_compaction_lag_ms
        )
        if segment_end > bound or too_young:
            break
        first_dirty_ms = min(first_dirty_ms, segment.indexes.first_timestamp_ms)
        dirty_bytes += segment.file.size_bytes
        end = segment_end
    overdue = now_ms - first_dirty_ms > settings.max_compaction_lag_ms
    return CleanableLog(start, end, clean_bytes, dirty_bytes, overdue)


def is_worth_cleaning(one: PartitionLog, dirt: CleanableLog) -> bool:
    """Check whether a log is compacted and dirty enough."""
    settings = one.settings
    enough = dirt.overdue or dirt.ratio > settings.min_cleanable_dirty_ratio
    return settings.compacts and dirt.dirty_bytes > 0 and enough


def pausing(work: Generator[None, None, Outcome]) -> Generator[None, None, Outcome]:
    """Run work on a batch, and yield after every few thousand of its records."""
    count = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        count += 1
        if count % PARTS_AT_ONCE == 0:
            yield


class Cleaning:
    """A compaction pass over one log."""

    def __init__(self, files: Files, one: PartitionLog, dirt: CleanableLog, now_ms: int) -> None:
        self.log = one
        self._files = files
        self._dirt = dirt
        self._now_ms = now_ms
        self._removals = one.segments.removals
        self._copy: Segment | None = None
        self._steps = self._run()

    def __repr__(self) -> str:
        return f"<cleaning of {self.log.directory} from {self._dirt.start} to {self._dirt.end}>"

    def step(self) -> bool:
        """Run one step of the pass; return False at its end. After an OSError or KafkaError the pass is abandoned."""
        if self.log.segments.removals != self._removals:
            self.abandon()
            return False
        try:
            next(self._steps)
        except StopIteration:
            return False
        except DecodeError as reason:
            self.abandon()
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.log.directory}: {reason}") from None
        except (OSError, KafkaError):
            self.abandon()
            raise
        return True

    def abandon(self) -> None:
        """Stop the pass and delete its unfinished copy."""
        self._steps.close()
        if self._copy is not None:
            self._copy.delete()
            self._copy = None

    def _run(self) -> Generator[None, None, None]:
        one, dirt = self.log, self._dirt
        for segment in one.segments:
            segment.finish_replacement()  # of an earlier pass, which a disk error ended
        offsets = OffsetMap(dirt.start, dirt.start)
        yield from self._fill(offsets)
        if offsets.unreadable:
            log.error(
                "%s: compaction kept %d unreadable batches unchanged, the first %s",
                one.directory,
                offsets.unreadable_count,
                offsets.unreadable,
            )
        before_bytes = one.size_bytes
        keeper = BatchFilter(
            offsets.newest,
            offsets.end,
            CleanedTransactions(one.producers.aborted_transactions(0, dirt.end)),
            last_of_producers(one.producers),
            self._now_ms,
            one.settings.delete_retention_ms,
        )
        for group in self._groups([segment for segment in one.segments if segment.base_offset < offsets.end]):
            yield from self._clean(group, keeper)
        one.cleaned_to = offsets.end
        log.info(
            "%s: compacted to offset %d, %d of %d bytes remain",
            one.directory,
            offsets.end,
            one.size_bytes,
            before_bytes,
        )

    def _fill(self, offsets: OffsetMap) -> Generator[None, None, None]:
        """Read the dirty part into the map until it is full."""
        one, dirt = self.log, self._dirt
        transactions = CleanedTransactions(one.producers.aborted_transactions(dirt.start, dirt.end))
        spans = list(zip(one.segments, one.segments.ends(one.log_end_offset), strict=True))  # appends add to them
        for segment, end in spans:
            if end <= dirt.start or segment.base_offset >= dirt.end:
                continue
            for piece in self._pieces(segment, dirt.start):
                for batch, header in piece:
                    if not (yield from pausing(offsets.iter_add(batch, header, transactions))):
                        return
                yield
        offsets.end = dirt.end

    def _pieces(self, segment: Segment, start: int = 0) -> Iterator[list[tuple[bytes, BatchHeader]]]:
        """Yield the batches from an offset on, one step at a time. Raises KafkaError for a corrupt batch."""
        piece: list[tuple[bytes, BatchHeader]] = []
        size_bytes = 0
        end = first = segment.position_of(start)
        for position, header in segment.headers(first):
            batch = segment.read_batch(position, header)
            if not check_crc(batch, 0, header):
                break
            end = position + header.size_bytes
            piece.append((batch, header))
            size_bytes += header.size_bytes
            if size_bytes >= STEP_BYTES:
                yield piece
                piece, size_bytes = [], 0
        if end != segment.file.size_bytes:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment!r} is damaged at byte {end}")
        yield piece

    def _groups(self, segments: list[Segment]) -> Iterator[list[Segment]]:
        """Yield groups of adjacent segments that fit into one, so that compaction does not leave many small ones."""
        limit_bytes = self.log.settings.segment_bytes
        group: list[Segment] = []
        size_bytes = 0
        for segment, following in zip_longest(segments, segments[1:]):
            end = self._dirt.end if following is None else following.base_offset
            added = segment.file.size_bytes
            if group and (size_bytes + added > limit_bytes or end - group[0].base_offset > RELATIVE_OFFSET_MAX):
                yield group
                group, size_bytes = [], 0
            group.append(segment)
            size_bytes += added
        if group:
            yield group

    def _clean(self, group: list[Segment], keeper: BatchFilter) -> Generator[None, None, None]:
        one = self.log
        copy = self._copy = Segment(self._files, one.directory, group[0].base_offset, group[-1].created_ms, ".cleaned")
        copy.file.truncate(0)
        changed = len(group) > 1
        for segment in group:
            for piece in self._pieces(segment):
                for batch, header in piece:
                    kept = yield from pausing(keeper.iter_keep(batch, header))
                    changed = changed or kept is not batch
                    if kept is not None:
                        copy.append(
                            kept,
                            last_offset=header.last_offset,
                            size_bytes=len(kept),
                            max_timestamp_ms=read_header(kept).max_timestamp,
                            index_interval_bytes=one.settings.index_interval_bytes,
                        )
                yield
        if changed:
            self._swap(group, copy, keeper.transactions)
        else:
            copy.delete()
        self._copy = None

    def _swap(self, group: list[Segment], copy: Segment, transactions: CleanedTransactions) -> None:
        one, segments = self.log, self.log.segments
        first = segments.index(group[0])
        start, end = group[0].base_offset, segments.ends(one.log_end_offset)[first + len(group) - 1]
        retained = set(transactions.retained)
        gone = {
            aborted
            for aborted in one.producers.aborted
            if start <= aborted.last_offset < end and aborted not in retained
        }
        copy.seal([aborted for aborted in transactions.retained if start <= aborted.last_offset < end], flushed=True)
        copy.file.flush()
        copy.rename(".swap")
        self._files.flush_directory(one.directory)
        # From here on the copy replaces the group, also after a crash or a power failure.
        self._copy = None
        copy.replaced = group
        segments.replace(len(group), first, copy)
        one.producers.aborted = [aborted for aborted in one.producers.aborted if aborted not in gone]
        copy.finish_replacement()
