"""The leader epoch cache of a log: the start offset of each leader epoch, for OffsetForLeaderEpoch and truncation.

A list of (epoch, start offset). Epochs and offsets both grow from entry to entry. Every change is saved in the format
of Kafka's `leader-epoch-checkpoint` (a version line, a count line, one line per entry).
A new epoch can begin on a full disk. Its checkpoint is then written and flushed later, at the latest before the
recovery point moves past the epoch's batches. With an old checkpoint and batches that are not scanned, the epoch would
seem to begin at the recovery point.
Sources: KIP-101, KIP-279, Kafka's `LeaderEpochFileCache`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
CHECKPOINT_NAME: Final = "leader-epoch-checkpoint"
_VERSION: Final = 0


class EpochEntry(NamedTuple):
    """A leader epoch and its start offset."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The leader epochs of one log, oldest first."""

    __slots__ = ("_entries", "_flush", "_save", "_unflushed", "unsaved")

    def __init__(
        self,
        entries: Sequence[EpochEntry] = (),
        save: Callable[[bytes], None] | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self._entries = list(entries)
        self._save = save
        self._flush = flush
        self._unflushed = bool(entries)  # the process that saved them may have ended before a flush
        self.unsaved = False
        """Whether the checkpoint is out of date, because the disk refused it."""

    def __repr__(self) -> str:
        return f"<epochs {' '.join(f'{epoch}@{start}' for epoch, start in self._entries)}>"

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """Return all entries, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """Return the latest epoch; -1 if there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, offset: int) -> None:
        """Set the start offset of an epoch, and remove entries with a later or equal epoch or offset."""
        if self._assign(epoch, offset) or self.unsaved:
            self.save_if_possible()

    def distrust_from(self, offset: int) -> None:
        """Drop the entries from an offset on before recovery, which finds them in the batches; does not save.

        A power failure may leave an older checkpoint, with epochs that a truncation has removed since.
        """
        self._entries = [entry for entry in self._entries if entry.start_offset < offset]

    def replay(self, epoch: int, offset: int) -> None:
        """Assign an epoch during recovery; the caller saves at the end."""
        if epoch > self.latest_epoch:
            self._assign(epoch, offset)

    def replay_earlier(self, written: Iterable[tuple[int, int]]) -> None:
        """Assign epochs of batches before the first entry during recovery; the caller saves at the end."""
        known, self._entries = self._entries, []
        for epoch, offset in written:
            self.replay(epoch, offset)
        latest = self.latest_epoch
        self._entries += [entry for entry in known if entry.epoch > latest]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch that is not above `epoch`, and its end offset (exclusive).

        Return (-1, -1) if the log has no entries, or if `epoch` is -1 or above the latest epoch.
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        known = entries[following - 1].epoch if following else epoch
        return known, entries[following].start_offset

    def epoch_for(self, offset: int) -> int:
        """Return the epoch that wrote an offset; -1 if the offset is before all entries."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[following - 1].epoch if following else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or after a new log end offset."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._entries = kept
            self.save_if_possible()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended before a new log start offset; the epoch of that offset now starts there."""
        following = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if following and self._entries[following - 1].start_offset < start_offset:
            first = EpochEntry(self._entries[following - 1].epoch, start_offset)
            self._entries[:following] = [first]
            self.save_if_possible()

    def clear(self) -> None:
        """Remove all epochs."""
        if self._entries:
            self._entries.clear()
            self.save_if_possible()

    def save(self) -> None:
        """Write the checkpoint. Raises OSError, after which it is still unsaved."""
        self.unsaved = True
        if self._save is not None:
            self._save(format_checkpoint(self._entries))
        self.unsaved = False
        self._unflushed = True

    def flush(self) -> None:
        """Flush the checkpoint to the disk. Raises OSError."""
        if self.unsaved:
            self.save()
        if self._unflushed and self._flush is not None:
            self._flush()
        self._unflushed = False

    def save_if_possible(self) -> None:
        """Write the checkpoint; log a failure and leave it for a later call."""
        try:
            self.save()
        except OSError as reason:
            log.warning("cannot write %s yet: %s", CHECKPOINT_NAME, reason)

    def _assign(self, epoch: int, offset: int) -> bool:
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= offset):
            entries.pop()
        entries.append(EpochEntry(epoch, offset))
        return True


def format_checkpoint(entries: Sequence[EpochEntry]) -> bytes:
    """Encode the content of `leader-epoch-checkpoint`."""
    lines = [str(_VERSION), str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()


def parse_checkpoint(content: bytes) -> list[EpochEntry]:
    """Decode the entries of a checkpoint. Raises ValueError."""
    version, count, *lines = content.decode().split("\n")
    pairs = [line.split() for line in lines if line]
    entries = [EpochEntry(int(epoch), int(start)) for epoch, start in pairs]
    if int(version) != _VERSION or int(count) != len(entries) or lines[-1:] != [""]:  # a number may be cut
        raise ValueError(f"a leader epoch checkpoint of version {version} with {len(entries)} of {count} entries")
    return entries
