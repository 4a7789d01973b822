"""Judges the deliveries of one group: in order per key, by the present owner, and complete in the end.

The order of the deliveries is the order in which the members recorded them. A record may be delivered again after a
failure; its first delivery decides the order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from anabranch.judge.records import Delivery, StoredRecord, Stream
from anabranch.judge.verdict import Verdict, key_text

OUT_OF_ORDER = "delivered out of order"
NEVER = "never delivered"
PHANTOM = "delivered, but not stored"
STALE_OWNER = "delivered by a stale owner"
TWICE = "delivered twice in one generation"


class DeliveryOrder:
    """Follows the deliveries of one group.

    Args:
        verdict: Gets the violations.
        stored: The records of each key and producer by sequence; None if the topic was not read.
        read: Partition -> the offsets that were read. A delivered record must be stored there.
    """

    def __init__(
        self,
        verdict: Verdict,
        stored: Mapping[Stream, Sequence[StoredRecord]] | None,
        read: Mapping[int, range] | None = None,
    ) -> None:
        self._verdict = verdict
        self._read = read or {}
        self._places = {(one.partition, one.offset): one for records in (stored or {}).values() for one in records}
        self._delivered: dict[Stream, set[int]] = defaultdict(set)
        self._highest: dict[Stream, int] = {}
        self._owners: dict[int, int] = {}
        """Partition -> the highest generation of the group in which a member delivered a record of it."""
        self._by_members: set[tuple[str, int, int, int, int]] = set()

    def follow(self, deliveries: Iterable[Delivery]) -> None:
        """Judge further deliveries."""
        for one in deliveries:
            self._verdict.delivered += 1
            self._judge_place(one)
            self._judge_owner(one)
            self._judge_order(one)

    def end(self, sent: Iterable[Delivery] = ()) -> None:
        """Judge that all stored records, and all acknowledged ones, were delivered."""
        expected = {(one.stream, one.sequence): f"{one.partition}@{one.offset}" for one in self._places.values()}
        for acknowledged in sent:
            place = f"{acknowledged.partition}@{acknowledged.offset}"
            expected.setdefault((acknowledged.stream, acknowledged.sequence), place)
        for (stream, sequence), place in sorted(expected.items(), key=_in_order):
            if sequence not in self._delivered[stream]:
                key = stream[0] if isinstance(stream[0], bytes) else None
                self._verdict.add(NEVER, key, f"number {sequence} at {place}")

    def _judge_place(self, one: Delivery) -> None:
        """A delivered record is the stored one; a record below the log start is gone, and cannot be compared."""
        stored = self._places.get((one.partition, one.offset))
        if stored is None:
            is_there = "nothing" if one.offset in self._read.get(one.partition, ()) else ""
        else:
            is_other = (stored.stream, stored.sequence) != (one.stream, one.sequence)
            is_there = f"{key_text(stored.key)}, number {stored.sequence}" if is_other else ""
        if is_there:
            self._verdict.add(PHANTOM, one.key, f"number {one.sequence}: at {one.partition}@{one.offset} is {is_there}")

    def _judge_owner(self, one: Delivery) -> None:
        """A partition's generations of the group do not go back; a member that keeps a partition repeats nothing."""
        if one.generation < 0:
            return
        newest = self._owners.get(one.partition, -1)
        where = f"number {one.sequence} at {one.partition}@{one.offset} by {one.member}"
        if one.generation < newest:
            text = f"{where} in generation {one.generation}, after generation {newest} had begun to deliver"
            self._verdict.add(STALE_OWNER, one.key, text)
        self._owners[one.partition] = max(newest, one.generation)
        delivery = (one.member, one.generation, one.assignment, one.partition, one.offset)
        if delivery in self._by_members:
            self._verdict.add(TWICE, one.key, f"{where} in generation {one.generation}")
        self._by_members.add(delivery)

    def _judge_order(self, one: Delivery) -> None:
        delivered = self._delivered[one.stream]
        if one.sequence in delivered:
            self._verdict.redelivered += 1
            return
        highest = self._highest.get(one.stream, -1)
        if one.sequence < highest:
            self._verdict.add(OUT_OF_ORDER, one.key, f"number {one.sequence} by {one.member}, first after {highest}")
        delivered.add(one.sequence)
        self._highest[one.stream] = max(highest, one.sequence)


def _in_order(expected: tuple[tuple[Stream, int], str]) -> tuple[bool, tuple[Stream, int]]:
    """Keys first, then the partitions of records without a key."""
    (stream, sequence), _ = expected
    return isinstance(stream[0], int), (stream, sequence)
