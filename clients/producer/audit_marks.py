"""The audit's numbers: each record's number among those of its key, in a header (`protocol.audit`).

Numbers are given when records are accepted, so that an audit also sees what the producer itself would bring out of
order. But not every record that is accepted is there to be read: its transaction is aborted, it is refused for good, or
it becomes too old. Rule: behind a record that may not be stored, or is not committed, its key begins again. Those that
are transmitted from then on count from 0 under another identity, like the records of another producer. So neither a
consumer that reads committed records only, nor one that reads all, finds a hole or a number twice.

What that costs: an audit compares the order of what came before with what came after no more than that of two
producers, and counts the key once more. What it does not cover: records of the key that may be in the log already when
the one before them fails stay as they are, behind the hole.
Pure.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from anabranch.clients.producer.queues import Batch, Record
from anabranch.protocol import audit

BREAKS_MAX: Final = 16
"""How many breaks are remembered per key: no more can have records behind them that are not stored yet."""

KeyOf = tuple[str, bytes]
"""A topic, and a key in it."""


class _Break(NamedTuple):
    """A key begins again behind a number that it was given, as soon as a record is transmitted that lies there."""

    after: int
    identity: int = audit.NO_PRODUCER
    first: int = -1
    """The number that is sent as 0."""


class AuditMarks:
    """Gives the numbers of one producer."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._identity = self._draw()
        self._numbers: dict[KeyOf, int] = {}
        self._uncommitted: set[KeyOf] = set()
        """Keys of the records that were accepted since the last commit."""
        self._breaks: dict[KeyOf, list[_Break]] = {}
        """The breaks of each key, by rising numbers."""

    def next_header(self, topic: str, key: bytes) -> tuple[str, bytes]:
        """The header of a key's next record, which need not be accepted."""
        return audit.HEADER, audit.encode_header(self._identity, self._numbers.get((topic, key), 0))

    def accepted(self, topic: str, key: bytes, *, transactional: bool) -> None:
        """The record of the last header was accepted: only now is its number used up."""
        of_key = topic, key
        self._numbers[of_key] = self._numbers.get(of_key, 0) + 1
        if transactional:
            self._uncommitted.add(of_key)

    def committed(self) -> None:
        """The transaction is committed, so that all accepted records can be read."""
        self._uncommitted.clear()

    def begin_transaction(self) -> None:
        """A new transaction begins: records that were not committed by now never will be."""
        for of_key in self._uncommitted:
            self._break(of_key, self._numbers[of_key] - 1)
        self._uncommitted.clear()

    def missing(self, topic: str, records: Iterable[Record]) -> None:
        """Note records that will not be stored, or whose outcome is unknown."""
        for record in records:
            if record.key is not None:
                self._break((topic, record.key), _number(record))

    def apply(self, batch: Batch) -> None:
        """Set the headers of a batch that is about to be transmitted, and is in no log yet.

        The records keep the numbers that they were given, because they may be transmitted again.
        """
        if self._breaks:
            topic = batch.queue.topic.name
            batch.marked = [self._marked(topic, record) for record in batch.records]

    def _marked(self, topic: str, record: Record) -> Record:
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
            headers=(*record.headers[:-1], (audit.HEADER, audit.encode_header(identity, number - first)))
        )

    def _break(self, of_key: KeyOf, number: int) -> None:
        breaks = self._breaks.setdefault(of_key, [])
        at = bisect.bisect_left(breaks, number, key=_after)
        if at < len(breaks) and breaks[at].after <= number + 1:
            return  # nothing lies between
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
    """The number that a record with a key was given, from the header that was added last."""
    return audit.decode_header(record.headers[-1][1] or b"")[1]
