"""The state of one bucket of keys, with its counts and violations.

The state is one value per bucket, packed as columns, because a round trip per key to the state store costs more than
the check. `checks` changes it with each batch. This module packs it, and reports from it: at any time (`count`), as
event time passes (`settle`), and at the end of the audit (`finish`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from anabranch.protocol.audit import Sender
from anabranch.protocol.records.compression import Compression, compress, decompress
from anabranch.spark_jobs import columns
from anabranch.spark_jobs.lines import PLACE, SKIPPED, Lines, line_hash, salt
from anabranch.spark_jobs.numbering import Numbers
from anabranch.spark_jobs.pending import LateGroup, Pending, Undelivered
from anabranch.spark_jobs.places import Place
from anabranch.spark_jobs.rules import Line, Skip, loss
from anabranch.spark_jobs.scope import FORGET_MS, Scope
from anabranch.spark_jobs.verdict import (
    COUNTED,
    KINDS,
    LOST,
    REPEATED,
    UNAUDITED,
    Event,
    Span,
    Tally,
    Unread,
    Violation,
    spans_of,
    unread_of,
)

LOSS_TIMEOUT_MS: Final = 10 * 60 * 1000
"""The event time after which a skipped record counts as lost."""
QUIET_MS: Final = 60 * 60 * 1000
"""After this time without a delivery, a line (a key of one producer) keeps only its last place."""
assert QUIET_MS > LOSS_TIMEOUT_MS, "a key with pending events is not idle"
SENDERS_KEPT: Final = 256
LEVEL: Final = 1
"""The compression level, with which the state store copies a third per batch: about 30 bytes per key."""
STATE_BYTES_MAX: Final = 1 << 31
NEVER_MS: Final = 1 << 62
NO_SENDER: Final = Sender("", "", "", 0, -1)
NO_GENERATION: Final = -1

_REPORTED: Final = SKIPPED.index("told")
_SKIP_GENERATION: Final = SKIPPED.index("generation")
_SKIP_TIME: Final = SKIPPED.index("time_ms")
"""The first time column of `lines.skipped`."""
_NO_PLACE: Final = (-1,) * len(PLACE)

Where = tuple[int, int]
"""An index of `names`, and a partition; or a generation."""


@dataclass(slots=True)
class Bucket:
    """The state of one bucket."""

    names: list[tuple[str, str]] = field(default_factory=list)
    """(group, topic)."""
    senders: list[Sender] = field(default_factory=list)
    lines: Lines = field(default_factory=Lines)
    numbers: Numbers = field(default_factory=Numbers)
    places: dict[Where, Place] = field(default_factory=dict)
    pending: Pending = field(default_factory=Pending)
    tallies: dict[Where, dict[str, int]] = field(default_factory=dict)
    """The counts of each name and generation."""
    keys: int = 0
    """Number of numbered keys ever seen, counted in each group."""
    forgotten: int = 0
    """Number of lines forgotten without a delivery for `FORGET_MS`."""
    clock_ms: int = 0
    """The time of the newest event."""
    started_ms: int = NEVER_MS
    """The time of the first event."""
    forget_ms: int = FORGET_MS
    home: int = -1
    """The partition of the audit topic that holds the bucket's runs; -1 before the first one."""

    def enter(self, scope: Scope) -> None:
        """Set the scope; it is the same in every batch."""
        assert scope.forget_ms >= QUIET_MS, "a forgotten key is idle, unless it misses events"
        self.forget_ms = scope.forget_ms
        if scope.expect is not None and scope.groups and not self.pending.named:
            self.pending.name([self.name_of(group, scope.expect) for group in scope.groups])

    # results

    def count(self) -> list[Tally]:
        """Return all counts, including currently missing records."""
        rows = {where: dict.fromkeys((*COUNTED, *KINDS), 0) | counts for where, counts in self.tallies.items()}
        for where, missing in self._missing().items():
            rows[where][LOST] += missing
        for sender, holes in self._holes():
            empty = dict.fromkeys((*COUNTED, *KINDS), 0)
            row = rows.setdefault((self.name_of(sender.group, sender.topic), NO_GENERATION), empty)
            row[UNAUDITED] += sum(last - first + 1 for first, last in holes)
        tallies = [Tally(*self.names[name], generation, counts) for (name, generation), counts in rows.items()]
        return sorted(tallies, key=lambda tally: tally[:3])

    def settle(self) -> list[Violation]:
        """Return records that have become lost as event time passed, each once.

        Also forget expired lines.
        """
        found: list[Violation] = []
        keys, rows = self.lines.skipped.columns()
        due = (rows[:, _REPORTED] == 0) & (self.clock_ms - rows[:, _SKIP_TIME] >= LOSS_TIMEOUT_MS)
        for first in np.unique(keys[due]).tolist():
            line = Line(skipped=[self.skip(first, row) for row in self.lines.skipped.get(first)])
            found += line.find_lost(self.clock_ms, LOSS_TIMEOUT_MS)
            self.lines.skipped.put(first, [self.flat(skip) for skip in line.skipped])
        self.lines.fall_quiet(self.clock_ms - QUIET_MS)
        found += self._forget_lines(self.clock_ms - self.forget_ms)
        if len(self.senders) > 2 * SENDERS_KEPT:
            self._forget_senders()
        return found

    def finish(self, expect: str | None, groups: Iterable[str]) -> tuple[list[Violation], list[Tally]]:
        """Return violations and counts at the end of the audit, beyond those of `count`. Changes nothing.

        `expect` is the topic whose records were stored; `groups`, all with a delivery of it.
        """
        found = [loss(skip) for skip in self._skips() if not skip.reported]
        found += [
            Violation(UNAUDITED, by.group, by.topic, 0, None, sequences=tuple(holes), member=by.member)
            for by, holes in self._holes()
        ]
        tallies = []
        for group in groups if expect is not None else ():
            assert expect is not None
            undelivered = list(self._undelivered_records(group, expect))
            counts = dict.fromkeys((*COUNTED, *KINDS), 0)
            for violation in undelivered:
                counts[violation.kind] += sum(last - first + 1 for first, last in violation.sequences) or 1
            if undelivered:
                tallies.append(Tally(group, expect, NO_GENERATION, counts))
            found += undelivered
        return found, tallies

    def unread(self, expect: str | None, groups: Iterable[str]) -> list[Unread]:
        """Return the places of records that `finish` counts as lost: stored and not delivered."""
        if expect is None:
            return []
        return unread_of(
            Unread(group, expect, one.partition, one.offset, 1)
            for group in groups
            for one, newest in self._stored_only(group, expect)
            if one.sequence < 0 or not newest.has_passed(one.sequence)
        )

    def waiting(self) -> dict[str, int]:
        """Return, per group, how many stored records of the audited topic are not delivered to it yet."""
        return {self.names[name][0]: self.pending.waiting(name) for name in self.pending.groups}

    def count_passed(self) -> int:
        """Return how many of those a group has read past, over all groups: lost unless they are still delivered."""
        read_to: dict[int, dict[int, int]] = {name: {} for name in self.pending.groups}
        for (name, partition), place in self.places.items():
            if name in read_to:
                read_to[name][partition] = place.read_to
        return sum(self.pending.count_passed(name, offsets) for name, offsets in read_to.items())

    # state store

    def pack(self) -> bytes:
        """Pack the state into bytes."""
        small = {
            "names": self.names,
            "senders": self.senders,
            "numbers": self.numbers.as_json(),
            "places": [[*where, place.as_json()] for where, place in self.places.items()],
            "tallies": [[*where, counts] for where, counts in self.tallies.items()],
            "keys": self.keys,
            "forgotten": self.forgotten,
            "clock_ms": self.clock_ms,
            "begun_ms": self.started_ms,
            "home": self.home,
            "pending": self.pending.small(),
        }
        packed = columns.pack({**self.lines.columns(), **self.pending.columns()}, small)
        return compress(Compression.ZSTD, packed, LEVEL)

    @classmethod
    def unpack(cls, data: bytes | None) -> Bucket:
        """Unpack a state; an empty bucket from None. Raises ForeignState, DecodeError."""
        if data is None:
            return cls()
        found, small = columns.unpack(decompress(Compression.ZSTD, data, STATE_BYTES_MAX))
        return cls(
            names=[(group, topic) for group, topic in small["names"]],
            senders=[Sender(*row) for row in small["senders"]],
            lines=Lines.of(found),
            numbers=Numbers.of_json(small["numbers"]),
            places={(name, partition): Place.of_json(place) for name, partition, place in small["places"]},
            pending=Pending.of(found, small["pending"]),
            tallies={(name, generation): counts for name, generation, counts in small["tallies"]},
            keys=small["keys"],
            forgotten=small["forgotten"],
            clock_ms=small["clock_ms"],
            started_ms=small["begun_ms"],
            home=small.get("home", -1),
        )

    # for the checks

    def name_of(self, group: str, topic: str) -> int:
        """Return the index of a group and topic."""
        if (group, topic) not in self.names:
            self.names.append((group, topic))
        return self.names.index((group, topic))

    def check_in_time(self, group: str, topic: str) -> None:
        """Note a group with a delivery of the audited topic, in any bucket. Raises LateGroup."""
        if self.pending.is_late(self._find_name(group, topic)):
            known = [self.names[name][0] for name in self.pending.groups]
            options = " ".join(f"--group {one}" for one in sorted({group, *known}))
            raise LateGroup(
                f"group {group} appeared after the audit forgot records of {topic} that all other groups had got: "
                f"name the groups from the beginning ({options}, with another --out), or audit afterwards: --backfill"
            )

    def add(self, name: int, generation: int, kind: str, count: int = 1) -> None:
        """Increase a count."""
        counts = self.tallies.setdefault((name, generation), {})
        counts[kind] = counts.get(kind, 0) + count

    def give_up(self, line: Line) -> list[Violation]:
        """Count a line as forgotten, and its missing records as lost.

        Returns losses that were not reported before.
        """
        assert line.newest is not None, "something was delivered"
        self.forgotten += 1
        name = self.name_of(line.newest.group, line.newest.topic)
        for skip in line.skipped:
            self.add(name, skip.by.generation, LOST, skip.last - skip.first + 1)
        return [loss(skip) for skip in line.skipped if not skip.reported]

    def event(self, name: int, producer: int, key: bytes | None, place: Sequence[int], fingerprint: int = 0) -> Event:
        """Build a delivery from the fields of `lines.PLACE`."""
        group, topic = self.names[name]
        sequence, partition, generation, offset, time_ms, sender = place
        by = self.senders[sender] if sender >= 0 else NO_SENDER
        return Event(
            group,
            topic,
            producer,
            key,
            sequence,
            partition,
            offset,
            generation,
            time_ms,
            fingerprint,
            by.member,
            by.incarnation,
            by.group_generation,
        )

    def place(self, event: Event) -> tuple[int, ...]:
        """Return the fields of `lines.PLACE` of a delivery."""
        sender = Sender(event.group, event.member, event.topic, event.incarnation, event.group_generation)
        index = self.senders.index(sender) if sender in self.senders else -1
        return event.sequence, event.partition, event.generation, event.offset, event.time_ms, index

    def skip(self, first: int, row: Sequence[int]) -> Skip:
        """Build the skipped sequences from their row in `lines.skipped`."""
        at = int(np.searchsorted(self.lines.first, np.uint64(first)))
        name, producer = int(self.lines.fields["name"][at]), int(self.lines.fields["producer"][at])
        begin, end, reported, *places = row
        key, by, before = self.lines.key(at), places[: len(PLACE)], places[len(PLACE) :]
        former = None if before == list(_NO_PLACE) else self.event(name, producer, key, before)
        return Skip(begin, end, bool(reported), self.event(name, producer, key, by), former)

    def flat(self, skip: Skip) -> tuple[int, ...]:
        """Return the row of skipped sequences."""
        before = _NO_PLACE if skip.before is None else self.place(skip.before)
        return skip.first, skip.last, int(skip.reported), *self.place(skip.by), *before

    def _missing(self) -> dict[Where, int]:
        """Count the sequences that were skipped and are missing, by the deliveries that skipped them."""
        found: dict[Where, int] = {}
        keys, rows = self.lines.skipped.columns()
        names = self.lines.fields["name"][np.searchsorted(self.lines.first, keys)]
        sizes = rows[:, 1] - rows[:, 0] + 1
        for where, size in zip(
            zip(names.tolist(), rows[:, _SKIP_GENERATION].tolist(), strict=True), sizes.tolist(), strict=True
        ):
            found[where] = found.get(where, 0) + size
        return found

    def _skips(self) -> list[Skip]:
        return [self.skip(first, row) for first, row in self.lines.skipped.items()]

    def _holes(self) -> Iterator[tuple[Sender, list[Span]]]:
        for incarnation, seen in self.numbers.seen.items():
            if seen.holes:
                yield next(one for one in self.senders if one.incarnation == incarnation), seen.holes

    def _find_name(self, group: str, topic: str) -> int | None:
        return self.names.index((group, topic)) if (group, topic) in self.names else None

    def _undelivered_records(self, group: str, topic: str) -> Iterator[Violation]:
        """Yield stored records that were not delivered to a group, without skipped ones, which are known already."""
        self.check_in_time(group, topic)
        by_line: dict[tuple[int, bytes | None], list[Undelivered]] = defaultdict(list)
        lines: dict[tuple[int, bytes | None], Line] = {}
        for one, line in self._stored_only(group, topic):
            if one.sequence < 0:
                yield Violation(LOST, group, topic, one.producer, one.key, partition=one.partition, offset=one.offset)
            else:
                by_line[one.producer, one.key].append(one)
                lines[one.producer, one.key] = line
        for (producer, key), rows in by_line.items():
            line = lines[producer, key]
            beyond = sorted({one.sequence for one in rows if not line.reaches(one.sequence)})
            if beyond:
                yield Violation(
                    LOST, group, topic, producer, key, before=line.newest, sequences=tuple(spans_of(beyond))
                )
            for one in rows:
                if line.has_passed(one.sequence):
                    yield Violation(
                        REPEATED,
                        group,
                        topic,
                        producer,
                        key,
                        before=line.newest,
                        partition=one.partition,
                        offset=one.offset,
                    )

    def _stored_only(self, group: str, topic: str) -> Iterator[tuple[Undelivered, Line]]:
        """Yield stored records that were not delivered to a group, each with the line of its key."""
        lines: dict[tuple[int, bytes | None], Line] = {}
        for one in self.pending.undelivered_records(self._find_name(group, topic)):
            which = one.producer, one.key
            if which not in lines:
                lines[which] = self._line(group, topic, *which) if one.sequence >= 0 else Line()
            yield one, lines[which]

    def _line(self, group: str, topic: str, producer: int, key: bytes | None) -> Line:
        name = self.name_of(group, topic)
        first, second = line_hash(key, salt(group, topic, producer))
        at = int(self.lines.find(first, second)[0])
        if at < 0:
            return Line()
        place = [int(self.lines.fields[field][at]) for field in PLACE]
        skipped = [self.skip(int(first[0]), row) for row in self.lines.skipped.get(int(first[0]))]
        began = sum(one for (one,) in self.lines.began.get(int(first[0])))
        return Line(newest=self.event(name, producer, key, place), skipped=skipped, began=began)

    def _forget_lines(self, before_ms: int) -> list[Violation]:
        """Forget lines without an event since `before_ms`. Returns losses that were not reported before.

        Missing records of the audited topic are still stored, and are judged there.
        """
        found, lines = [], self.lines
        old = np.flatnonzero(lines.fields["heard_ms"] < before_ms)
        old = old[~np.isin(lines.fields["name"][old], self.pending.groups)]
        for row in old.tolist():
            first = int(lines.first[row])
            name, producer = int(lines.fields["name"][row]), int(lines.fields["producer"][row])
            newest = self.event(name, producer, lines.key(row), [int(lines.fields[one][row]) for one in PLACE])
            found += self.give_up(Line(newest, skipped=[self.skip(first, one) for one in lines.skipped.get(first)]))
        self.forgotten += lines.forget(before_ms, old) - len(old)
        return found

    def _forget_senders(self) -> None:
        used = set(self.lines.senders().tolist())
        used |= set(self.pending.handed.columns["sender"].tolist())
        holed = {by.incarnation for by, _ in self._holes()}
        kept = [
            index
            for index, one in enumerate(self.senders)
            if index in used or one.incarnation in holed or index >= len(self.senders) - SENDERS_KEPT
        ]
        renumbered = np.full(len(self.senders) + 1, -1, np.int64)
        renumbered[kept] = np.arange(len(kept))
        self.senders = [self.senders[index] for index in kept]
        self.lines.renumber_senders(renumbered)
        self.pending.handed.columns["sender"] = renumbered[self.pending.handed.columns["sender"]].astype(np.int32)
