"""Aborted transactions: the `.txnindex` of a segment, and the decision which aborted batches compaction removes.

An index holds the transactions whose ABORT marker is in the segment. The format is Kafka's (`AbortedTxn`): version 0,
producer id, first offset, last offset (the marker's) and the last stable offset at that time.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from anabranch.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
    read_header,
)
from anabranch.protocol.records.control import ControlRecord, ControlType

_ENTRY: Final = struct.Struct(">hqqqq")
_LENGTH: Final = struct.Struct(">i")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction whose records `read_committed` consumers skip; the last offset is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int = -1


def encode_aborted(aborted: Iterable[AbortedTransaction]) -> bytes:
    """Encode the content of a `.txnindex` file."""
    return b"".join(_ENTRY.pack(_VERSION, *one) for one in aborted)


def decode_aborted(content: bytes) -> list[AbortedTransaction]:
    """Decode the entries of a `.txnindex` file. Raises ValueError."""
    if len(content) % _ENTRY.size:
        raise ValueError(f"a transaction index of {len(content)} bytes")
    found = []
    for version, *fields in _ENTRY.iter_unpack(content):
        one = AbortedTransaction(*fields)
        if version != _VERSION or one.last_offset < one.first_offset:
            raise ValueError(f"a transaction index of version {version} with {one}")
        found.append(one)
    return found


def decode_aborted_within(content: bytes | None, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Decode the `.txnindex` of a segment with these offsets; None is a missing file. Raises ValueError."""
    if content is None:
        raise ValueError("it has no transaction index")
    aborted = decode_aborted(content)
    markers = [base_offset - 1, *(one.last_offset for one in aborted), end_offset]
    if any(earlier >= later for earlier, later in pairwise(markers)):
        raise ValueError("its transaction index has markers of other offsets")
    return aborted


def aborted_between(
    aborted: Sequence[AbortedTransaction], start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return the transactions that overlap a range of offsets; `aborted` is sorted by the markers' offsets.

    The search ends at a marker with a last stable offset beyond the range: later transactions began after that offset.
    """
    found = []
    for place in range(bisect_left(aborted, start_offset, key=_end_of), len(aborted)):
        one = aborted[place]
        if one.first_offset < end_offset:
            found.append(one)
        if one.last_stable_offset >= end_offset:
            break
    return found


_end_of: Final = attrgetter("last_offset")


def offset_behind(batches: Buffer, start_offset: int) -> int:
    """Return the offset after the last of some whole batches; `start_offset` if there are none."""
    position, last, size = 0, -1, len(batches)
    while position + HEADER_BYTES <= size:
        last = position
        position += LOG_OVERHEAD_BYTES + _LENGTH.unpack_from(batches, position + LENGTH_POSITION)[0]
    return start_offset if last < 0 else read_header(batches, last).next_offset


class CleanedTransactions:
    """Tracks transactions through the batches that the cleaner reads (Kafka's `CleanedTransactionMetadata`).

    Batches of aborted transactions are removed immediately. A marker can be removed if its transaction has no batches
    left, that is in the pass after the one that removed the last batch.
    """

    __slots__ = ("_aborted", "_committed", "_known", "retained")

    def __init__(self, known: Sequence[AbortedTransaction]) -> None:
        self._known = sorted(known, key=lambda one: one.first_offset, reverse=True)
        self._aborted: dict[int, list[object]] = {}  # producer id -> [transaction, whether it has a batch]
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """The aborted transactions whose marker stays in the log."""

    def discards(self, header: BatchHeader) -> bool:
        """Check whether a batch of records belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        entry = self._aborted.get(header.producer_id)
        if entry is None:
            self._committed.add(header.producer_id)
            return False
        entry[1] = True
        return True

    def discards_marker(self, header: BatchHeader, control: ControlRecord | None) -> bool:
        """Check whether a control batch is superfluous; `control` is None if it is empty already."""
        self._reach(header.last_offset)
        if control is None:
            return True
        if control.type is ControlType.ABORT:
            entry = self._aborted.pop(header.producer_id, None)
            if entry is None or not entry[1]:
                return True
            assert isinstance(entry[0], AbortedTransaction)
            self.retained.append(entry[0])
            return False
        if control.type is ControlType.COMMIT:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not met
        return False

    def _reach(self, offset: int) -> None:
        while self._known and self._known[-1].first_offset <= offset:
            one = self._known.pop()
            self._aborted.setdefault(one.producer_id, [one, False])
