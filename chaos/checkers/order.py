"""Order across resizes (KIP-253): the records of one key are delivered in the order in which they were sent.

The rules I1 to I5 are those of the lineage: the partition of a key, and which key epoch must end before which one
begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from anabranch.chaos.checkers.shared import Checker, at, is_gone_unread, stored_offsets, was_removed_unread
from anabranch.chaos.history import Commit, Delivery, History, OffsetsReset, Place, ReadStart, Stored
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.linear_hashing import address


def b1_key_order(history: History) -> Iterator[str]:
    """First deliveries of one key's records are not in the order in which they were sent (I4).

    Left out are records that were deleted unread with their partition, and are delivered where they had been fetched.
    """
    sent = {send.value: send for send in history.sends}
    last: dict[tuple[str, str], tuple[int, str]] = {}
    delivered: set[str] = set()
    for delivery in history.deliveries:
        send = sent.get(delivery.value)
        if send is None or delivery.value in delivered or was_removed_unread(history, delivery):
            continue
        delivered.add(delivery.value)
        of_key = (send.producer, send.key)
        before, value = last.get(of_key, (-1, ""))
        if send.sequence < before:
            where = at(delivery.place, delivery.offset)
            yield f"{delivery.value} at {where} was first delivered after {value}"
        last[of_key] = max((before, value), (send.sequence, delivery.value))


def b2_early_open(history: History) -> Iterator[str]:
    """Delivered before every earlier key epoch of the key was committed to its end (I4').

    A commit counts from its request on: a waiting member may learn of it before the committing one. A commit that an
    administrator has reset does not count.
    """
    ends = _key_epoch_ends(history)
    committed: dict[Place, int] = {}
    events: list[tuple[int, Commit | Delivery | OffsetsReset]] = [(one.order, one) for one in history.commits]
    events += [(one.order, one) for one in history.deliveries]
    events += [(one.order, one) for one in history.resets if one.outcome == "ok"]
    reported: set[tuple[Place, KeyEpoch]] = set()
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, OffsetsReset):
            committed.update(event.offsets)
            continue
        if isinstance(event, Commit):
            for place, offset in event.offsets.items():
                committed[place] = max(committed.get(place, -1), offset)
            continue
        lineage = history.lineage(event.place[0])
        if lineage is None or event.generation < 0:
            continue
        key_epoch = KeyEpoch(event.place[1], event.generation)
        for before in _predecessors(lineage, key_epoch):
            place = (event.place[0], before.partition)
            end, done = ends.get((place, before.generation), 0), committed.get(place, 0)
            if done < end and (event.place, before) not in reported:
                reported.add((event.place, before))
                yield f"{at(event.place, event.offset)} of {key_epoch} before {before}: committed {done} of {end}"


def b3_misrouted(history: History) -> Iterator[str]:
    """Stored in a partition that the key does not belong to in that generation (I1)."""
    unordered = {send.value for send in history.sends if not send.ordered}
    for record in history.stored:
        lineage = history.lineage(record.place[0])
        if lineage is None or record.value in unordered:
            continue
        generation = history.generation_of(record.place, record.leader_epoch)
        count = lineage.count_at(generation)
        place = address(murmur2(record.key.encode()), lineage.base, count)
        if place != record.place[1]:
            where = at(record.place, record.offset)
            yield f"{record.key} belongs to {place} in generation {generation}, stands at {where}"


def b4_write_after_seal(history: History) -> Iterator[str]:
    """Stored in an epoch in which the partition was sealed."""
    sealed = {(one.place, one.leader_epoch) for one in history.states if one.sealed}
    for record in history.stored:
        if (record.place, record.leader_epoch) in sealed:
            yield f"{record.value} at {at(record.place, record.offset)} in the sealed epoch {record.leader_epoch}"


def b6_regress(history: History) -> Iterator[str]:
    """A process sees an epoch or a generation decrease."""
    last: dict[tuple[str, str], int] = {}
    for one in history.seen:
        before = last.get((one.process, one.what), -1)
        if one.number < before:
            yield f"{one.process}: {one.what} goes from {before} to {one.number}"
        last[one.process, one.what] = max(before, one.number)


def b9_illegal_replay(history: History) -> Iterator[str]:
    """A member starts above what its group has committed or has read contiguously.

    It may start anywhere up to what was read contiguously.
    """
    offsets = stored_offsets(history)
    delivered: dict[Place, set[int]] = defaultdict(set)
    events: list[tuple[int, Delivery | ReadStart]] = [(one.order, one) for one in history.read_starts]
    events += [(one.order, one) for one in history.deliveries]
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, Delivery):
            delivered[event.place].add(event.offset)
            continue
        there = offsets.get(event.place, [])
        skipped = [one for one in there[: bisect_left(there, event.offset)] if one not in delivered[event.place]]
        if skipped:
            yield f"{event.consumer} begins at {at(event.place, event.offset)}, and {skipped[:5]} were never delivered"


def b12_callbacks(history: History) -> Iterator[str]:
    """Records of a new key epoch delivered before their owner flushed the old one (I5).

    The member that got the last record of a key epoch flushes before the first record of one that waited for it. It
    need not if it is dead by then, or if the group went on without it: another member has got the partition, or the
    member hears later that it has lost it. The new owner's callback runs before. A partition that was removed with
    records that were deleted unread closes no gate (K705).
    Without barriers in the group a member may learn late that keys have moved, and flushes before it reads on there.
    """
    opened: dict[tuple[Place, int], int] = {}
    last: dict[tuple[Place, int], tuple[int, str, int]] = {}
    read: dict[tuple[Place, str], list[int]] = defaultdict(list)
    seen: set[tuple[Place, int]] = set()
    for delivery in history.deliveries:
        key_epoch = (delivery.place, delivery.generation)
        opened.setdefault(key_epoch, delivery.order)
        read[delivery.place, delivery.consumer].append(delivery.order)
        if (delivery.place, delivery.offset) not in seen:
            seen.add((delivery.place, delivery.offset))
            last[key_epoch] = (delivery.order, delivery.consumer, delivery.offset)
    flushed: dict[tuple[Place, str], list[int]] = defaultdict(list)
    flushes: dict[Place, list[int]] = defaultdict(list)
    for callback in history.callbacks:
        for place in callback.places:
            if callback.kind == "assigned":
                flushes[place].append(callback.order)
            else:
                flushed[place, callback.consumer].append(callback.order)
    losses = {one.order for one in history.callbacks if one.kind == "lost"}
    died = {one.consumer: one.order for one in history.died}
    taken: dict[Place, list[tuple[int, str]]] = defaultdict(list)
    for start in history.read_starts:
        taken[start.place].append((start.order, start.consumer))
    for (place, generation), order in opened.items():
        lineage = history.lineage(place[0])
        before = () if lineage is None else _predecessors(lineage, KeyEpoch(place[1], generation))
        if before and bisect_left(flushes[place], order) == 0:
            yield f"{place} generation {generation} is delivered and its owner was not told"
        for one in before:
            parent = (place[0], one.partition)
            ended, consumer, offset = last.get((parent, one.generation), (order, "", 0))
            if ended >= order or ended < died.get(consumer, -1) < order:
                continue
            if is_gone_unread(history, parent, offset + 1, order) or any(
                ended < at < order and other != consumer for at, other in taken[parent]
            ):
                continue
            orders = flushed[parent, consumer]
            if losses.intersection(orders[bisect_left(orders, ended) :][:1]):
                continue
            if not history.barriers:
                later = read[parent, consumer][bisect_left(read[parent, consumer], order) :]
                if not later or bisect_left(orders, later[0]) > bisect_left(orders, ended):
                    continue
            if bisect_left(orders, order) == bisect_left(orders, ended):
                yield f"{place} generation {generation} is delivered, and {consumer} has not flushed {parent}"


def b13_log_order(history: History) -> Iterator[str]:
    """One key's records are in the logs in an order that the lineage does not allow (I3)."""
    stored = {record.value: record for record in history.stored}
    after: dict[str, dict[KeyEpoch, frozenset[KeyEpoch]]] = defaultdict(dict)
    last: dict[tuple[str, str], Stored] = {}
    for send in history.sends:
        record = stored.get(send.value)
        if record is None or not send.ordered:
            continue
        before = last.get((send.producer, send.key))
        last[send.producer, send.key] = record
        if before is None:
            continue
        if before.place == record.place:
            if before.offset >= record.offset:
                yield f"{before.value} at {at(before.place, before.offset)}, {record.value} at {record.offset}"
            continue
        lineage = history.lineage(record.place[0])
        assert lineage is not None
        one = KeyEpoch(before.place[1], history.generation_of(before.place, before.leader_epoch))
        two = KeyEpoch(record.place[1], history.generation_of(record.place, record.leader_epoch))
        if two not in _reachable(lineage, one, after[record.place[0]]):
            yield f"{before.value} in key epoch {one}, {record.value} in key epoch {two}, which does not follow it"


def _predecessors(lineage: Lineage, key_epoch: KeyEpoch) -> tuple[KeyEpoch, ...]:
    if key_epoch.generation not in lineage.class_generations(key_epoch.partition):
        return ()
    return lineage.predecessors(key_epoch)


def _key_epoch_ends(history: History) -> dict[tuple[Place, int], int]:
    """Return the offset after the last record of each key epoch."""
    ends: dict[tuple[Place, int], int] = {}
    for record in history.stored:
        key_epoch = (record.place, history.generation_of(record.place, record.leader_epoch))
        ends[key_epoch] = max(ends.get(key_epoch, 0), record.offset + 1)
    return ends


def _reachable(lineage: Lineage, start: KeyEpoch, known: dict[KeyEpoch, frozenset[KeyEpoch]]) -> frozenset[KeyEpoch]:
    """Return the key epochs that begin after this one has ended, along the lineage."""
    if start not in known:
        following = list(lineage.successors(start))
        if (after := lineage.next(start)) is not None:
            following.append(after)
        found = set(following)
        for one in following:
            found |= _reachable(lineage, one, known)
        known[start] = frozenset(found)
    return known[start]


CHECKERS: Final[dict[str, Checker]] = {
    "B1 key-order": b1_key_order,
    "B2 early-open": b2_early_open,
    "B3 misrouted": b3_misrouted,
    "B4 write-after-seal": b4_write_after_seal,
    "B6 regress": b6_regress,
    "B9 illegal-replay": b9_illegal_replay,
    "B12 callbacks": b12_callbacks,
    "B13 log-order": b13_log_order,
}
