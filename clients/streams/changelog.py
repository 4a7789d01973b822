"""Changelogs: the compacted topic of each store, and how much of it the store on disk holds.

Partition p of a store's changelog is the store of task p, record by record. Every instance that needs the store reads
it: one that takes the task over, one that keeps a standby, and one whose new task got its first content from elsewhere.
*Marks* are the runtime's own records among them: they note that state has arrived from, or left for, other partitions
in a resize, and the stream time that closes windows.

Invariant: everything committed below `Checkpoint.offset` is in the store on disk, and nothing uncommitted is. A task
knows the offsets of its own writes, and need not read those again; but others write to its changelog too, when keys
move to it. So the checkpoint passes own records only as long as they are consecutive, with only the marker of the
previous own transaction in between. After a gap it stays, and later records are read again.

Pure. The topics' names and their cleanup policy are those of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CONFIGS: Final[Mapping[str, str]] = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
MARK_HEADER: Final = "anabranch.mark"
MARK_HEADERS: Final[tuple[tuple[str, bytes | None], ...]] = ((MARK_HEADER, b""),)
_MARK_PREFIX: Final = b"\xff\xffanabranch/"
_ARRIVED: Final = _MARK_PREFIX + b"arrived/"
_DEPARTED: Final = _MARK_PREFIX + b"departed"
_TIME: Final = _MARK_PREFIX + b"time/"
MISPLACED: Final = _MARK_PREFIX + b"misplaced"
"""The mark of a store that has had a record in another partition than its key's; its value identifies the record."""
NOTHING: Final = -1


def changelog_topic(application_id: str, store: str) -> str:
    """Return Kafka Streams' name of a store's changelog."""
    return f"{application_id}-{store}-changelog"


def arrived_mark(source: int, generation: int) -> tuple[bytes, bytes]:
    """Return the mark for a complete arrival: all keys of `source` for this partition at `generation` precede it."""
    return _ARRIVED + b"%d" % source, b"%d" % generation


def departed_mark(generation: int) -> tuple[bytes, bytes]:
    """Return the mark for a complete departure: all keys that left up to `generation` are handed over."""
    return _DEPARTED, b"%d" % generation


def time_mark(partition: int, stream_time_ms: int) -> tuple[bytes, bytes]:
    """Return the mark for the stream time that the task of a partition has observed, with these windows."""
    return _TIME + b"%d" % partition, b"%d" % stream_time_ms


def observed_time(rows: Mapping[bytes, bytes]) -> int:
    """Return the highest stream time of a store's marks: its task's own, and those that came with keys; -1 if none."""
    return max((int(value) for key, value in rows.items() if key.startswith(_TIME)), default=-1)


def is_mark(headers: Collection[tuple[str, bytes | None]]) -> bool:
    """Whether a changelog record is one of the runtime's own."""
    return any(name == MARK_HEADER for name, _ in headers)


@dataclass(frozen=True, slots=True)
class Marks:
    """The content of one store's marks."""

    arrived: Mapping[int, int]
    """Source partition -> the newest generation whose keys it has handed over to this one."""
    departed: int
    """The newest generation whose departures are done; NOTHING if none is."""
    misplaced: str = ""
    """A record of the store whose key belongs to another partition (`misplaced_keys`); empty if there was none."""

    @classmethod
    def read(cls, rows: Mapping[bytes, bytes]) -> Marks:
        """Read the mark records of a store, by key."""
        arrived = {int(key.removeprefix(_ARRIVED)): int(to) for key, to in rows.items() if key.startswith(_ARRIVED)}
        return cls(arrived, int(rows.get(_DEPARTED, b"%d" % NOTHING)), rows.get(MISPLACED, b"").decode())


class Checkpoint:
    """How much of one changelog partition one store holds."""

    __slots__ = ("_own_marker_due", "gap", "offset")

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.gap = False
        """Whether another instance may have written at `offset`."""
        self._own_marker_due = False

    def read_to(self, offset: int) -> None:
        """Note that the store holds every record below this offset."""
        if offset < self.offset:
            return
        if offset > self.offset:
            self._own_marker_due = False
        self.offset, self.gap = offset, False

    def wrote(self, offsets: Sequence[int], *, transactional: bool) -> None:
        """Note that the store holds its task's records at these offsets, which are committed."""
        if not offsets:
            return
        first, last = min(offsets), max(offsets)
        expected = self.offset + 1 if self._own_marker_due else self.offset
        if self.gap or first != expected or last - first + 1 != len(offsets):
            self.gap = True
            return
        self.offset, self._own_marker_due = last + 1, transactional

    def doubt(self) -> None:
        """Note that a written record did not become part of the store."""
        self.gap = True
