"""Numbers records for the audit: each record's sequence within its key, in a header (`protocol.audit`).

Numbers are assigned when records are accepted, so an audit also detects reordering by the producer itself. But an
accepted record may never be readable: its transaction is aborted, it is refused for good, or it expires. Rule: after a
record that may not be stored, or is not committed, its key restarts. Records transmitted from then on count from 0
under another identity, like those of another producer. So neither a consumer that reads committed records only, nor one
that reads all, finds a gap or a duplicate.

The cost: an audit does not compare the order of records before and after a restart, as with two producers, and counts
the key twice. Not covered: records of the key that may be in the log already when an earlier one fails stay as they
are, after the gap. Pure.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from anabranch.clients.producer.producer_record import Record
from anabranch.clients.producer.queues import Batch
from anabranch.protocol import audit_mark

BREAKS_MAX: Final = 16
"""Number of breaks kept per key: no more can have unstored records after them."""

KeyOf = tuple[str, bytes]
"""A topic, and a key in it."""


class _Break(NamedTuple):
    """A restart of a key at a number, as soon as a record after it is transmitted."""

    after: int
    identity: int = audit_mark.NO_PRODUCER
    first: int = -1
    """The number that is sent as 0."""


class AuditMarks:
    """Assigns the numbers of one producer."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._identity = self._draw()
        self._numbers: dict[KeyOf, int] = {}
        self._uncommitted: set[KeyOf] = set()
        """Keys of records accepted since the last commit."""
        self._breaks: dict[KeyOf, list[_Break]] = {}
        """The breaks of each key, in rising order."""

    def next_header(self, topic: str, key: bytes) -> tuple[str, bytes]:
        """Return the header of a key's next record, which may still be refused."""
        return audit_mark.HEADER, audit_mark.encode(self._identity, self._numbers.get((topic, key), 0))

    def on_accepted(self, topic: str, key: bytes, *, transactional: bool) -> None:
        """Note that the record of the last header was accepted: this uses its number."""
        of_key = topic, key
        self._numbers[of_key] = self._numbers.get(of_key, 0) + 1
        if transactional:
            self._uncommitted.add(of_key)

    def on_committed(self) -> None:
        """Note a committed transaction: all accepted records are readable."""
        self._uncommitted.clear()

    def begin_transaction(self) -> None:
        """Begin a transaction: records that are still uncommitted never will be committed."""
        for of_key in self._uncommitted:
            self._break(of_key, self._numbers[of_key] - 1)
        self._uncommitted.clear()

    def missing(self, topic: str, records: Iterable[Record]) -> None:
        """Note records that will not be stored, or have an unknown outcome."""
        for record in records:
            if record.key is not None:
                self._break((topic, record.key), _number(record))

    def apply(self, batch: Batch) -> None:
        """Set the headers of a batch before its first transmission.

        The records keep their assigned numbers, because they may be transmitted again.
        """
        if self._breaks:
            topic = batch.queue.topic.name
            batch.marked = [self._mark(topic, record) for record in batch.records]

    def _mark(self, topic: str, record: Record) -> Record:
        breaks = None if record.key is None else self._breaks.get((topic, record.key))
        if breaks is None:
            return record
        number = _number(record)
        at = bisect.bisect_left(breaks, number, key=_after) - 1
        if at < 0:
            return record
        if not 0 <= breaks[at].first <= number:
            breaks[at] = _Break(breaks[at].after, self._draw(), number)
        _, identity, first = breaks[at]
        return record._replace(
            headers=(*record.headers[:-1], (audit_mark.HEADER, audit_mark.encode(identity, number - first)))
        )

    def _break(self, of_key: KeyOf, number: int) -> None:
        breaks = self._breaks.setdefault(of_key, [])
        at = bisect.bisect_left(breaks, number, key=_after)
        if at < len(breaks) and breaks[at].after <= number + 1:
            return  # no break in between
        if at and breaks[at - 1] == _Break(number - 1):
            breaks[at - 1] = _Break(number)
        else:
            breaks.insert(at, _Break(number))
            del breaks[:-BREAKS_MAX]

    def _draw(self) -> int:
        return 1 + self._rng.getrandbits(63)


def _after(one: _Break) -> int:
    return one.after


def _number(record: Record) -> int:
    """Return the number of a record with a key, from its last header."""
    return audit_mark.decode(record.headers[-1][1] or b"")[1]
