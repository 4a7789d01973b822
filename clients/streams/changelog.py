"""Changelogs: the compacted topic behind each store, and how much of it the store on disk holds.

Partition p of a store's changelog is the store of task p, record by record. Every instance that needs the store reads
it: one that takes the task over, one that keeps a standby, and one whose new task got its first content from elsewhere.
*Marks* are records of the runtime's own among them: they say that state has arrived from, or left for, other partitions
in a resize.

Invariant: everything committed below `Checkpoint.offset` is in the store on disk, and nothing that is not committed. A
task knows the offsets of what it wrote itself, and need not read that again; but others write to its changelog too,
when keys come to it. So the checkpoint moves over own records only as long as they follow one another, with nothing in
between but the marker that ended the own transaction before. After a gap it stays, and what comes after is read again.

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
MISPLACED: Final = _MARK_PREFIX + b"misplaced"
"""The mark of a store that has had a record whose key belongs to another partition; its value tells which record."""
NOTHING: Final = -1


def changelog_topic(application_id: str, store: str) -> str:
    """Kafka Streams' name of a store's changelog."""
    return f"{application_id}-{store}-changelog"


def arrived_mark(source: int, generation: int) -> tuple[bytes, bytes]:
    """The mark which says: all keys that partition `source` had to give to this one at `generation` stand before it."""
    return _ARRIVED + b"%d" % source, b"%d" % generation


def departed_mark(generation: int) -> tuple[bytes, bytes]:
    """The mark which says: all keys that left this partition up to `generation` have been passed on."""
    return _DEPARTED, b"%d" % generation


def is_mark(headers: Collection[tuple[str, bytes | None]]) -> bool:
    """Whether a changelog record is one of the runtime's own."""
    return any(name == MARK_HEADER for name, _ in headers)


@dataclass(frozen=True, slots=True)
class Marks:
    """What the marks of one store say."""

    arrived: Mapping[int, int]
    """Source partition -> the newest generation whose keys it has passed on to this one."""
    departed: int
    """The newest generation whose departures are done; NOTHING if none is."""
    misplaced: str = ""
    """A record of the store whose key belongs to another partition (`misplaced_keys`); empty if there was none."""

    @classmethod
    def read(cls, rows: Mapping[bytes, bytes]) -> Marks:
        """Read the mark records that a store has collected, by key."""
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
        """The store has been given every record below this offset."""
        if offset < self.offset:
            return
        if offset > self.offset:
            self._own_marker_due = False
        self.offset, self.gap = offset, False

    def wrote(self, offsets: Sequence[int], *, transactional: bool) -> None:
        """The store holds the records that its task wrote at these offsets; they are committed now."""
        if not offsets:
            return
        first, last = min(offsets), max(offsets)
        expected = self.offset + 1 if self._own_marker_due else self.offset
        if self.gap or first != expected or last - first + 1 != len(offsets):
            self.gap = True
            return
        self.offset, self._own_marker_due = last + 1, transactional

    def doubt(self) -> None:
        """A record that was written did not become part of the store."""
        self.gap = True
