"""The owner and position of each partition: rules across keys, within one bucket.

    two owners     an owner is an incarnation of a member in one generation of its group. Generations rise from owner to
                   owner. A second owner delivers a record after an owner of a higher generation began to, or is another
                   one of the same generation whose events are stored after the first's. *After* means both in the order
                   of the audit topic and by the time of the events: a partition is revoked when its events are stored,
                   so a clean hand-over is in order there, whatever two machines' clocks show; their time distinguishes
                   events that were stored late from new ones. Each pair is reported once per bucket
    repeated       a partition is read in order; after a failure it is read again from an earlier offset. That is no
                   violation if the repetition continues to the last position. Otherwise a record was delivered after
                   later ones that were not delivered again. And a member that delivers a record again, without having
                   begun to read the partition again (`begin_number`: no new assignment, no seek), repeats without a
                   failure
    late           an event of an earlier owner, stored after those of a later one, that happened before them. An event
                   of a later owner did not, even if its clock lags

Offsets of one bucket's records in a partition suffice: every record belongs to some bucket.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.spark_jobs.verdict import REPEATED, TWO_OWNERS, Event, Violation

OWNERS_MAX: Final = 8
"""How many owners are kept per partition; one that was replaced so often overlaps with each of them."""
NO_GENERATION: Final = -1


@dataclass(slots=True)
class Owner:
    """One incarnation of a member in one generation of its group, and its deliveries from a partition."""

    began_ms: int
    newest: Event
    """Its latest delivery, by time."""
    reported: list[int] = field(default_factory=list)
    """Incarnations of the owners whose overlap with it was reported."""


@dataclass(slots=True)
class Place:
    """One partition of one topic in one group, for one bucket's records."""

    position: int = -1
    """The offset of the latest delivery."""
    read_to: int = -1
    begin_number: int = -1
    """The begin number (`begin_number`) of the latest delivery."""
    newest: Event | None = None
    """The latest delivery."""
    owners: list[Owner] = field(default_factory=list)

    def plain(self, first: Event) -> bool:
        """Whether deliveries by one member with rising offsets from here on are plain: `extend` suffices."""
        newest = self.newest
        return (
            newest is not None
            and first.offset > self.read_to == self.position
            and _same_owner(newest, first)
            and self.owners[-1].newest is newest
        )

    def extend(self, last: Event, begin_number: int) -> None:
        """Add plain deliveries, of which this is the last."""
        self.position = self.read_to = last.offset
        self.begin_number = begin_number
        self.newest = self.owners[-1].newest = last

    def take(self, event: Event, begin_number: int, *, again: bool) -> list[Violation]:
        """Add one delivery; `again`: its key has seen it before. Returns its violations."""
        newest = self.newest
        violations, deposed = self._check_owners(event)
        if deposed:
            return violations
        if again and newest is not None and event.offset <= self.position and self._goes_on(event, begin_number):
            return [*violations, Violation.of(REPEATED, event, before=newest)]
        if event.offset > self.read_to:
            if self.position < self.read_to and newest is not None:
                violations.append(Violation.of(REPEATED, newest, before=None, after=event))
            self.read_to = event.offset
        elif not again or (newest is not None and happened_before(event, newest)):
            return violations
        self.position, self.begin_number = event.offset, begin_number
        self.newest = event
        return violations

    def _goes_on(self, event: Event, begin_number: int) -> bool:
        """Whether the latest delivery's member delivers this without a new begin number."""
        return self.newest is not None and _same_owner(self.newest, event) and begin_number == self.begin_number >= 0

    def _check_owners(self, event: Event) -> tuple[list[Violation], bool]:
        """Return violations by overlapping owners, each reported once.

        And whether the event's owner had been replaced by then.
        """
        if event.group_generation == NO_GENERATION:
            self.owners = [Owner(event.time_ms, event)]
            return [], False
        mine = next((one for one in self.owners if _same_owner(one.newest, event)), None)
        if mine is None:
            mine = Owner(event.time_ms, event)
            self.owners.append(mine)
            # The sort is stable: within one generation, the owner that was seen first is the older one.
            self.owners.sort(key=lambda one: one.newest.group_generation)
        elif event.time_ms >= mine.newest.time_ms:
            mine.newest = event
        found, deposed = [], False
        for younger in itertools.takewhile(lambda one: one is not mine, reversed(self.owners)):
            if younger.newest.incarnation == event.incarnation or not _went_on(mine, event, younger):
                continue
            deposed = True
            if younger.newest.incarnation not in mine.reported:
                mine.reported.append(younger.newest.incarnation)
                found.append(Violation.of(TWO_OWNERS, event, before=younger.newest))
        del self.owners[:-OWNERS_MAX]
        return found, deposed

    def as_json(self) -> list[Any]:
        """Convert to JSON for the state store."""
        owners = [[one.began_ms, _flat(one.newest), one.reported] for one in self.owners]
        return [
            self.position,
            self.read_to,
            self.begin_number,
            None if self.newest is None else _flat(self.newest),
            owners,
        ]

    @classmethod
    def of_json(cls, found: list[Any]) -> Place:
        """Restore from `as_json`."""
        position, read_to, begin_number, newest, owners = found
        made = cls(position, read_to, begin_number, None if newest is None else _event(newest))
        made.owners = [Owner(began_ms, _event(flat), reported) for began_ms, flat, reported in owners]
        if made.owners and made.newest == made.owners[-1].newest:
            made.newest = made.owners[-1].newest
        return made


def happened_before(event: Event, newest: Event) -> bool:
    """Whether an event of another member, stored after this one, happened earlier.

    Clocks decide only within one generation: a member of a later generation came later.
    """
    return (
        event.incarnation != newest.incarnation
        and event.group_generation <= newest.group_generation
        and event.time_ms < newest.time_ms
    )


def _went_on(older: Owner, event: Event, younger: Owner) -> bool:
    """Whether this event of the older owner, stored after the younger's first, also happened after it."""
    if event.group_generation == younger.newest.group_generation and older.began_ms >= younger.newest.time_ms:
        return False  # their order is unknown: the apparently younger one has ended, and its events were stored late
    return event.time_ms > younger.began_ms


def _same_owner(one: Event, other: Event) -> bool:
    return (one.incarnation, one.group_generation) == (other.incarnation, other.group_generation)


def _flat(event: Event) -> list[Any]:
    return [*event._replace(key=None), None if event.key is None else event.key.hex()]


def _event(flat: list[Any]) -> Event:
    *values, key = flat
    return Event._make(values)._replace(key=None if key is None else bytes.fromhex(key))
