"""Judges the deliveries of a run of any length, key by key, in constant memory per key (I4, I6, I12).

A writer numbers the records of each key from 0. Each reader notes its deliveries in the ledger, in the one order of
this process. The next record of a key is allowed. So is a repetition, as long as no later record of that key has come
from another partition: a reader that restarts at the group's commits repeats the end of a partition, never what
precedes a crossed cut (K602). Everything else is an anomaly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ANOMALIES_KEPT: Final = 50


@dataclass(slots=True)
class KeyStory:
    """The progress of one key."""

    next_sequence: int = 0
    count: int = 0
    """How many of its records were delivered: a repetition goes back, and this does not."""
    partition: int = -1
    """The partition of the last record."""
    since: int = 0
    """The first sequence number from that partition."""


@dataclass(slots=True)
class Ledger:
    """All keys of one topic, and the anomalies so far."""

    keys: dict[bytes, KeyStory] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    """Partition -> the offset after the highest delivered one."""
    delivered: int = 0
    repeated: int = 0
    """The number of repeated deliveries after a reader restarted, which are allowed."""
    found: int = 0
    anomalies: list[str] = field(default_factory=list)

    def hand_out(self, key: bytes, sequence: int, partition: int, offset: int) -> None:
        """Judge a delivered record."""
        story = self.keys.get(key)
        if story is None:
            story = self.keys[key] = KeyStory()
        end = self.ends.get(partition, 0)
        if offset >= end:
            self.ends[partition] = offset + 1
        if sequence == story.next_sequence:
            story.next_sequence = sequence + 1
            story.count = max(story.count, story.next_sequence)
            if partition != story.partition:
                story.partition, story.since = partition, sequence
            if offset >= end:
                self.delivered += 1
            else:
                self.repeated += 1  # the second half of a repetition
            return
        self._judge(story, key, sequence, f"{partition}:{offset}", partition, repeats=offset < end)

    def _judge(self, story: KeyStory, key: bytes, sequence: int, place: str, partition: int, *, repeats: bool) -> None:
        name = key.decode(errors="replace")
        if sequence > story.next_sequence:
            self._note(f"I4 out of order: {name}/{sequence} at {place} before {name}/{story.next_sequence}")
        elif not repeats:
            self._note(f"I6 twice: {name}/{sequence} at {place} is stored a second time")
        elif partition != story.partition or sequence < story.since:
            self._note(f"I4 out of order: {name}/{sequence} again at {place}, after {name}/{story.since} elsewhere")
        else:
            self.repeated += 1
        story.next_sequence = sequence + 1
        story.count = max(story.count, story.next_sequence)

    def _note(self, anomaly: str) -> None:
        self.found += 1
        if len(self.anomalies) < ANOMALIES_KEPT:
            self.anomalies.append(anomaly)

    def missing(self, acknowledged: dict[bytes, int]) -> int:
        """Return how many acknowledged records were not delivered; `acknowledged`: key -> its count."""
        return sum(max(count - self._known(key), 0) for key, count in acknowledged.items())

    def _known(self, key: bytes) -> int:
        story = self.keys.get(key)
        return 0 if story is None else story.count
