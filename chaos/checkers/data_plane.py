"""Compares sent records with stored and delivered ones: nothing lost, invented, repeated, moved or read too early.

The definitions and names are those of Jepsen's Kafka workload.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from anabranch.chaos.checkers.shared import Checker, at
from anabranch.chaos.history import History, Place


def a1_inconsistent_offsets(history: History) -> Iterator[str]:
    """Two values at one offset of a partition: in deliveries, acknowledgements or the log."""
    seen: dict[tuple[Place, int], tuple[str, str]] = {}
    for place, offset, value, source in _values_by_position(history):
        first = seen.setdefault((place, offset), (value, source))
        if first[0] != value:
            yield f"{at(place, offset)}: {first[0]} ({first[1]}) and {value} ({source})"


def a2_duplicate(history: History) -> Iterator[str]:
    """One value at two offsets, or in two partitions, such as a parent and its child."""
    seen: dict[str, tuple[Place, int]] = {}
    for record in history.stored:
        first = seen.setdefault(record.value, (record.place, record.offset))
        if first != (record.place, record.offset):
            yield f"{record.value} at {at(*first)} and at {at(record.place, record.offset)}"


def a3_lost_write(history: History) -> Iterator[str]:
    """Acknowledged, passed by a read of a later offset of its partition, and neither there nor deleted."""
    read_up_to: dict[Place, int] = {}
    for delivery in history.deliveries:
        read_up_to[delivery.place] = max(read_up_to.get(delivery.place, -1), delivery.offset)
    known = {record.value for record in history.stored} | {delivery.value for delivery in history.deliveries}
    for send in history.sends:
        if send.outcome != "ok" or send.place is None or send.value in known:
            continue
        if send.offset < history.deleted_unread.get(send.place, 0):
            continue
        if send.offset <= read_up_to.get(send.place, -1):
            yield f"{send.value}, acknowledged at {at(send.place, send.offset)}"


def a4_unseen(history: History) -> Iterator[str]:
    """Acknowledged and not in the final log although no request deleted it, or stored and never delivered.

    A deleted record of a topic that is read must have been delivered, unless retention deleted it, or a request that
    did not wait for groups.
    """
    stored = {record.value for record in history.stored}
    delivered = {delivery.value for delivery in history.deliveries}
    for send in history.sends:
        if send.outcome != "ok" or send.value in stored:
            continue
        assert send.place is not None
        where = f"{send.value}, acknowledged at {at(send.place, send.offset)},"
        if not history.deleted(send.place, send.offset):
            yield f"{where} is not in the log"
        elif send.offset < history.deleted_unread.get(send.place, 0):
            continue
        elif send.value not in delivered and not {send.place[0]} & (history.unread | history.gone):
            yield f"{where} was deleted before it was delivered"
    for record in history.stored:
        if record.offset < history.deleted_unread.get(record.place, 0):
            continue  # a batch stays whole while one of its records is left
        if record.value not in delivered and record.place[0] not in history.unread:
            yield f"{record.value} at {at(record.place, record.offset)} was never delivered"


def a5_aborted_read(history: History) -> Iterator[str]:
    """Delivered or stored although its send definitely failed."""
    failed = {send.value for send in history.sends if send.outcome == "fail"}
    for place, offset, value, source in _values_by_position(history):
        if value in failed:
            yield f"{value} failed and is at {at(place, offset)} ({source})"


def a6_phantom(history: History) -> Iterator[str]:
    """Delivered or stored although no producer sent it, or with another key."""
    sent = {send.value: send.key for send in history.sends}
    rows = [(one.place, one.offset, one.key, one.value) for one in history.stored]
    rows += [(one.place, one.offset, one.key, one.value) for one in history.deliveries]
    for place, offset, key, value in rows:
        if sent.get(value) != key:
            yield f"{key}={value} at {at(place, offset)} was never sent"


def a11_nonmonotonic_send(history: History) -> Iterator[str]:
    """Acknowledged sends of one producer to one partition go back.

    Only of topics that were never resized: a resize moves keys past one another, and B13 checks the order of each key.
    """
    resized = {one.topic for one in history.published if len(one.history) > 1}
    last: dict[tuple[str, Place], int] = {}
    for send in history.sends:
        if send.outcome == "ok" and send.place is not None and send.place[0] not in resized:
            before = last.get((send.producer, send.place), -1)
            if send.offset <= before:
                yield f"{send.value} at {at(send.place, send.offset)}, after {before}"
            last[send.producer, send.place] = send.offset


def a17_real_time_order(history: History) -> Iterator[str]:
    """A send that began after another was acknowledged gets a lower offset."""
    by_place: dict[Place, list[tuple[int, int, str, bool, int]]] = defaultdict(list)
    for send in history.sends:
        if send.outcome == "ok" and send.place is not None:
            by_place[send.place].append((send.order, send.offset, send.value, False, send.offset))
            by_place[send.place].append((send.acked_order, send.offset, send.value, True, send.offset))
    for place, events in by_place.items():
        highest, who = -1, ""
        for _, offset, value, acked, _ in sorted(events):
            if acked:
                if offset > highest:
                    highest, who = offset, value
            elif offset < highest:
                yield f"{value} at {at(place, offset)} was sent after {who} was acknowledged at {highest}"


def a18_visible_ack(history: History) -> Iterator[str]:
    """A leader reports an end of a partition to a client that lies before acknowledged records.

    A newly elected leader answers that it does not know the end yet (KIP-207). A deposed leader that does not know it
    may report less.
    """
    offices: dict[Place, list[tuple[int, int, int]]] = defaultdict(list)
    for state in history.states:
        offices[state.place].append((state.order, state.leader, state.leader_epoch))
    acked: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    for send in sorted(history.sends, key=lambda one: one.acked_order):
        if send.outcome == "ok" and send.place is not None:
            highest = max(send.offset, acked[send.place][-1][1] if acked[send.place] else -1)
            acked[send.place].append((send.acked_order, highest))
    for end in history.reported_ends:
        last = bisect_left(offices[end.place], (end.order,)) - 1
        known = bisect_left(acked[end.place], (end.order,)) - 1
        in_office = last >= 0 and offices[end.place][last][1:] == (end.node, end.leader_epoch)
        if in_office and known >= 0 and acked[end.place][known][1] >= end.offset:
            offset = acked[end.place][known][1]
            yield f"{end.node} says that {end.place} ends at {end.offset}, and {offset} was acknowledged before"


def a19_immutable_prefix(history: History) -> Iterator[str]:
    """Delivered, and not in the final log although it was not deleted."""
    stored = {(record.place, record.offset) for record in history.stored}
    for one in history.deliveries:
        if (one.place, one.offset) not in stored and not history.deleted(one.place, one.offset):
            yield f"{one.value} was delivered at {at(one.place, one.offset)}, where nothing stands any more"


def a20_epoch_order(history: History) -> Iterator[str]:
    """Leader epochs go back along a log."""
    last: dict[Place, tuple[int, int]] = {}
    for record in sorted([*history.stored, *history.copied], key=lambda one: (one.place, one.offset)):
        epoch, offset = last.get(record.place, (-1, -1))
        if record.leader_epoch < epoch:
            yield f"{at(record.place, record.offset)} has epoch {record.leader_epoch}, offset {offset} has {epoch}"
        last[record.place] = (record.leader_epoch, record.offset)


def a25_sequence_gap(history: History) -> Iterator[str]:
    """A producer's batch sequences in a partition's log have gaps.

    They start at 0, unless the partition's first records were deleted.
    """
    next_sequence: dict[tuple[Place, int, int], int] = {}
    for record in sorted([*history.stored, *history.copied], key=lambda one: (one.place, one.offset)):
        if record.producer_id < 0:
            continue
        key = (record.place, record.producer_id, record.producer_epoch)
        expected = next_sequence.get(key, record.sequence if record.place in history.log_starts else 0)
        if record.sequence != expected:
            yield f"{at(record.place, record.offset)}: sequence {record.sequence} of {key[1:]}, expected {expected}"
        next_sequence[key] = (record.sequence + 1) % 2**31


def a39_undead(history: History) -> Iterator[str]:
    """Stored or delivered where it was acknowledged, although its topic was deleted afterwards."""
    buried = {
        (send.value, send.place[1], send.offset): send.place[0]
        for send in history.sends
        if send.outcome == "ok" and send.place is not None and send.place[0] in history.gone
    }
    for place, offset, value, source in _values_by_position(history):
        topic = buried.get((value, place[1], offset))
        if topic is not None and place[0] != topic:
            yield f"{value} of {topic} is at {at(place, offset)} ({source})"


def _values_by_position(history: History) -> Iterator[tuple[Place, int, str, str]]:
    for record in [*history.stored, *history.copied]:
        yield record.place, record.offset, record.value, "log"
    for read in history.committed_reads:
        yield read.place, read.offset, read.value, f"read by {read.reader}"
    for delivery in history.deliveries:
        yield delivery.place, delivery.offset, delivery.value, f"delivery to {delivery.consumer}"
    for send in history.sends:
        if send.outcome == "ok" and send.place is not None:
            yield send.place, send.offset, send.value, "acknowledgement"


def a49_served_without_right(history: History) -> Iterator[str]:
    """A client reads or writes a record while every broker knows that it may not.

    Only records that were sent in this time count for reads: the client may have fetched others before.
    """
    sends = {send.value: send for send in history.sends}
    for denied in history.denials:
        span = range(denied.order, denied.until_order)
        if denied.operation == "WRITE":
            for send in history.sends:
                to_topic = send.place is not None and send.place[0] == denied.topic
                own = send.producer.rpartition(".")[0] == denied.client
                if to_topic and own and send.outcome == "ok" and send.order in span and send.acked_order in span:
                    yield f"{send.producer} may not write to {denied.topic}, and wrote {send.value}"
            continue
        for delivery in history.deliveries:
            sent = sends.get(delivery.value)
            own = delivery.consumer.rpartition(".")[0] == denied.client and delivery.place[0] == denied.topic
            if own and sent is not None and sent.order in span and delivery.order in span:
                yield f"{delivery.consumer} may not read {denied.topic}, and got {delivery.value}"


CHECKERS: Final[dict[str, Checker]] = {
    "A1 inconsistent-offsets": a1_inconsistent_offsets,
    "A2 duplicate": a2_duplicate,
    "A3 lost-write": a3_lost_write,
    "A4 unseen": a4_unseen,
    "A5 aborted-read": a5_aborted_read,
    "A6 phantom": a6_phantom,
    "A11 nonmonotonic-send": a11_nonmonotonic_send,
    "A17 real-time-order": a17_real_time_order,
    "A18 visible-ack": a18_visible_ack,
    "A19 immutable-prefix": a19_immutable_prefix,
    "A20 epoch-order": a20_epoch_order,
    "A25 sequence-gap": a25_sequence_gap,
    "A39 undead": a39_undead,
    "A49 served-without-right": a49_served_without_right,
}
