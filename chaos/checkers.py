"""Judges a history. Names and definitions: A of Jepsen's Kafka workload, B of order across resizes, C of the white box.

Each checker is a function of the history that yields one line per violation, with what is needed to find the place. All
take at most O(n log n). What is allowed on purpose is said where it is allowed.

    A1  inconsistent-offsets   two values at one place and offset, ever: in deliveries, in acknowledgements, in the log
    A2  duplicate              one value at two places (over all partitions, so B7 is in it)
    A3  lost-write             acknowledged, overtaken by a later offset of its partition that was read, and not there
    A4  unseen                 acknowledged and not in the final log
    A5  aborted-read           delivered or stored although its send definitely failed
    A6  phantom                delivered or stored although nobody sent it, or with another key
    A7  poll-skip              a member jumps over stored records of a partition within one assignment
    A9  nonmonotonic-poll      a member goes back in a partition within one assignment
    A11 nonmonotonic-send      acknowledged sends of one producer to one partition go back
    A17 real-time-order        a send that began after another was acknowledged gets a lower offset
    A18 delivered-unsafe       delivered at or above any high watermark that a leader ever had
    A20 epoch-order            leader epochs go back along a log
    A21 commit-lost            a member begins below what was acknowledged as committed
    A22 zombie-commit          a commit is acknowledged to a generation of the group that had been superseded
    A23 skipped-delivery       committed beyond records that no member was given
    A24 double-ownership       two members get one partition's records in one generation of the group
    A25 sequence-gap           a producer's batch sequences in a partition's log do not follow one another
    B1  key-order              first deliveries of one key's records are not in the order in which they were sent (I4)
    B2  early-open             delivered before everything that held the key before was committed to its end (I4')
    B3  misrouted              stored in a partition that the key does not belong to in that generation (I1)
    B4  write-after-seal       stored in an epoch in which the partition was sealed
    B5  log-order              one key's records stand in the logs in an order that the lineage does not allow (I3)
    B6  regress                an epoch or a generation goes back in the eyes of one process
    B9  illegal-replay         a member begins above what its group has committed, or has read contiguously
    B12 callbacks              records of a new segment delivered before their owner flushed the old one (I5)
    C1  leader-in-isr          a committed state whose leader is not in its ISR
    C2  strong-isr             a leader's high watermark above the log of a member of its ISR
    C8  early-join             an ISR granted with a member that has not reached the high watermark
    C9  unfit-isr              an ISR committed with a member of another life than the registered one (KIP-903)
    C5  high-watermark-back    a replica's high watermark goes back, or its log is cut below it
    C6  epochs                 leader epochs do not rise with the zxid, or two brokers lead in one epoch
    C11 stale-controller       a state written by a session that was not in office, or with an older controller epoch
    C13 unsafe-ack             acks=all answered while a member of the ISR lacked the record, or too few were in it
    C16 replicas-differ        replicas that are not byte for byte equal up to the high watermark
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from chaos.history import Begun, Commit, Delivery, History, Place, Stored
from protocol.hashing import murmur2
from protocol.lineage import Lineage, Segment
from protocol.linear_hashing import address

Checker = Callable[[History], Iterator[str]]


def _values_by_position(history: History) -> Iterator[tuple[Place, int, str, str]]:
    for record in history.stored:
        yield record.place, record.offset, record.value, "log"
    for delivery in history.deliveries:
        yield delivery.place, delivery.offset, delivery.value, f"delivery to {delivery.consumer}"
    for send in history.sends:
        if send.outcome == "ok" and send.place is not None:
            yield send.place, send.offset, send.value, "acknowledgement"


def a1_inconsistent_offsets(history: History) -> Iterator[str]:
    seen: dict[tuple[Place, int], tuple[str, str]] = {}
    for place, offset, value, source in _values_by_position(history):
        first = seen.setdefault((place, offset), (value, source))
        if first[0] != value:
            yield f"{_at(place, offset)}: {first[0]} ({first[1]}) and {value} ({source})"


def a2_duplicate(history: History) -> Iterator[str]:
    seen: dict[str, tuple[Place, int]] = {}
    for record in history.stored:
        first = seen.setdefault(record.value, (record.place, record.offset))
        if first != (record.place, record.offset):
            yield f"{record.value} at {_at(*first)} and at {_at(record.place, record.offset)}"


def a3_lost_write(history: History) -> Iterator[str]:
    read_up_to: dict[Place, int] = {}
    for delivery in history.deliveries:
        read_up_to[delivery.place] = max(read_up_to.get(delivery.place, -1), delivery.offset)
    known = {record.value for record in history.stored} | {delivery.value for delivery in history.deliveries}
    for send in history.sends:
        if send.outcome != "ok" or send.place is None or send.value in known:
            continue
        if send.offset <= read_up_to.get(send.place, -1):
            yield f"{send.value}, acknowledged at {_at(send.place, send.offset)}"


def a4_unseen(history: History) -> Iterator[str]:
    stored = {record.value for record in history.stored}
    delivered = {delivery.value for delivery in history.deliveries}
    for send in history.sends:
        if send.outcome == "ok" and send.value not in stored:
            assert send.place is not None
            yield f"{send.value}, acknowledged at {_at(send.place, send.offset)}, is not in the log"
    for record in history.stored:
        if record.value not in delivered:
            yield f"{record.value} at {_at(record.place, record.offset)} was never delivered"


def a5_aborted_read(history: History) -> Iterator[str]:
    failed = {send.value for send in history.sends if send.outcome == "fail"}
    for place, offset, value, source in _values_by_position(history):
        if value in failed:
            yield f"{value} failed and is at {_at(place, offset)} ({source})"


def a6_phantom(history: History) -> Iterator[str]:
    sent = {send.value: send.key for send in history.sends}
    rows = [(one.place, one.offset, one.key, one.value) for one in history.stored]
    rows += [(one.place, one.offset, one.key, one.value) for one in history.deliveries]
    for place, offset, key, value in rows:
        if sent.get(value) != key:
            yield f"{key}={value} at {_at(place, offset)} is not what anybody sent"


def _runs(history: History) -> Iterator[tuple[list[Delivery], int]]:
    """The deliveries of each run, in order, with where it began."""
    begun = {(one.consumer, one.run, one.place): one.offset for one in history.begun}
    runs: dict[tuple[str, int, Place], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        runs[delivery.consumer, delivery.run, delivery.place].append(delivery)
    for key, run in runs.items():
        yield run, begun.get(key, -1)


def a7_poll_skip(history: History) -> Iterator[str]:
    offsets = _stored_offsets(history)
    for run, begun in _runs(history):
        expected = begun
        for delivery in run:
            there = offsets.get(delivery.place, [])
            skipped = there[bisect_left(there, expected) : bisect_left(there, delivery.offset)]
            if expected >= 0 and skipped:
                where = _at(delivery.place, delivery.offset)
                yield f"{delivery.consumer} jumps from {expected} to {where} over {skipped[:5]}"
            expected = delivery.offset + 1


def a9_nonmonotonic_poll(history: History) -> Iterator[str]:
    for run, begun in _runs(history):
        expected = begun
        for delivery in run:
            if delivery.offset < expected:
                yield f"{delivery.consumer} goes back from {expected} to {_at(delivery.place, delivery.offset)}"
            expected = delivery.offset + 1


def a11_nonmonotonic_send(history: History) -> Iterator[str]:
    """Of a topic that was never resized: a resize moves keys past one another, and B5 holds each key to its order."""
    resized = {one.topic for one in history.published if len(one.history) > 1}
    last: dict[tuple[str, Place], int] = {}
    for send in history.sends:
        if send.outcome == "ok" and send.place is not None and send.place[0] not in resized:
            before = last.get((send.producer, send.place), -1)
            if send.offset <= before:
                yield f"{send.value} at {_at(send.place, send.offset)}, after {before}"
            last[send.producer, send.place] = send.offset


def a17_real_time_order(history: History) -> Iterator[str]:
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
                yield f"{value} at {_at(place, offset)} was sent after {who} was acknowledged at {highest}"


def a18_delivered_unsafe(history: History) -> Iterator[str]:
    reached: dict[Place, int] = {}
    moves = iter(sorted(history.high_watermarks, key=lambda one: one.order))
    move = next(moves, None)
    for delivery in history.deliveries:
        while move is not None and move.order < delivery.order:
            reached[move.place] = max(reached.get(move.place, 0), move.after)
            move = next(moves, None)
        if delivery.offset >= reached.get(delivery.place, 0):
            high = reached.get(delivery.place, 0)
            yield f"{delivery.value} at {_at(delivery.place, delivery.offset)}, high watermark at most {high}"


def a20_epoch_order(history: History) -> Iterator[str]:
    last: dict[Place, tuple[int, int]] = {}
    for record in sorted(history.stored, key=lambda one: (one.place, one.offset)):
        epoch, offset = last.get(record.place, (-1, -1))
        if record.leader_epoch < epoch:
            yield f"{_at(record.place, record.offset)} has epoch {record.leader_epoch}, offset {offset} has {epoch}"
        last[record.place] = (record.leader_epoch, record.offset)


def a21_commit_lost(history: History) -> Iterator[str]:
    committed: dict[Place, tuple[int, int]] = {}
    events: list[tuple[int, Commit | Begun]] = [
        (one.acked_order, one) for one in history.commits if one.outcome == "ok"
    ]
    events += [(one.order, one) for one in history.begun]
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, Commit):
            for place, offset in event.offsets.items():
                committed[place] = max(committed.get(place, (-1, -1)), (event.group_generation, offset))
            continue
        generation, there = committed.get(event.place, (-1, -1))
        if event.offset < there and event.group_generation > generation:
            yield f"{event.consumer} begins at {_at(event.place, event.offset)}; {there} was committed"


def a22_zombie_commit(history: History) -> Iterator[str]:
    """A member that reads in a generation has joined it, so the coordinator had left the one before."""
    orders: list[int] = []
    newest: list[int] = []
    for one in sorted(history.begun, key=lambda one: one.order):
        orders.append(one.order)
        newest.append(max(one.group_generation, newest[-1] if newest else -1))
    for commit in history.commits:
        before = bisect_left(orders, commit.order) - 1
        if commit.outcome == "ok" and before >= 0 and newest[before] > commit.group_generation:
            yield (
                f"{commit.consumer} commits {dict(commit.offsets)} in generation {commit.group_generation}, "
                f"when generation {newest[before]} had begun"
            )


def a23_skipped_delivery(history: History) -> Iterator[str]:
    offsets = _stored_offsets(history)
    first = _first_deliveries(history)
    done: dict[Place, int] = {}
    for commit in sorted(history.commits, key=lambda one: one.order):
        for place, offset in commit.offsets.items():
            there = offsets.get(place, [])
            start = done.get(place, 0)
            for one in there[bisect_left(there, start) : bisect_left(there, offset)]:
                if first.get((place, one), commit.order + 1) > commit.order:
                    yield f"{commit.consumer} commits {_at(place, offset)}, and {one} was delivered to nobody"
            done[place] = max(start, offset)


def a24_double_ownership(history: History) -> Iterator[str]:
    owners: dict[tuple[Place, int], str] = {}
    for one in history.deliveries:
        owner = owners.setdefault((one.place, one.group_generation), one.consumer)
        if owner != one.consumer:
            yield f"{one.place} in generation {one.group_generation} is read by {owner} and {one.consumer}"
            owners[one.place, one.group_generation] = one.consumer


def a25_sequence_gap(history: History) -> Iterator[str]:
    next_sequence: dict[tuple[Place, int, int], int] = {}
    for record in sorted(history.stored, key=lambda one: (one.place, one.offset)):
        if record.producer_id < 0:
            continue
        key = (record.place, record.producer_id, record.producer_epoch)
        expected = next_sequence.get(key, 0)
        if record.sequence != expected:
            yield f"{_at(record.place, record.offset)}: sequence {record.sequence} of {key[1:]}, expected {expected}"
        next_sequence[key] = (record.sequence + 1) % 2**31


# --- order across resizes


def b1_key_order(history: History) -> Iterator[str]:
    sent = {send.value: send for send in history.sends}
    last: dict[tuple[str, str], tuple[int, str]] = {}
    delivered: set[str] = set()
    for delivery in history.deliveries:
        send = sent.get(delivery.value)
        if send is None or delivery.value in delivered:
            continue
        delivered.add(delivery.value)
        of_key = (send.producer, send.key)
        before, value = last.get(of_key, (-1, ""))
        if send.sequence < before:
            where = _at(delivery.place, delivery.offset)
            yield f"{delivery.value} at {where} was first delivered after {value}"
        last[of_key] = max((before, value), (send.sequence, delivery.value))


def b2_early_open(history: History) -> Iterator[str]:
    """A commit counts from when it was asked for: whoever waits for it may hear of it before the one who made it."""
    ends = _segment_ends(history)
    committed: dict[Place, int] = {}
    events: list[tuple[int, Commit | Delivery]] = [(one.order, one) for one in history.commits]
    events += [(one.order, one) for one in history.deliveries]
    said: set[tuple[Place, Segment]] = set()
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, Commit):
            for place, offset in event.offsets.items():
                committed[place] = max(committed.get(place, -1), offset)
            continue
        lineage = history.lineage(event.place[0])
        if lineage is None or event.generation < 0:
            continue
        segment = Segment(event.place[1], event.generation)
        for before in _predecessors(lineage, segment):
            place = (event.place[0], before.partition)
            end, done = ends.get((place, before.generation), 0), committed.get(place, 0)
            if done < end and (event.place, before) not in said:
                said.add((event.place, before))
                yield f"{_at(event.place, event.offset)} of {segment} before {before}: committed {done} of {end}"


def b3_misrouted(history: History) -> Iterator[str]:
    for record in history.stored:
        lineage = history.lineage(record.place[0])
        if lineage is None:
            continue
        generation = history.generation_of(record.place, record.leader_epoch)
        count = lineage.count_at(generation)
        place = address(murmur2(record.key.encode()), lineage.base, count)
        if place != record.place[1]:
            where = _at(record.place, record.offset)
            yield f"{record.key} belongs to {place} in generation {generation}, stands at {where}"


def b4_write_after_seal(history: History) -> Iterator[str]:
    sealed = {(one.place, one.leader_epoch) for one in history.states if one.sealed}
    for record in history.stored:
        if (record.place, record.leader_epoch) in sealed:
            yield f"{record.value} at {_at(record.place, record.offset)} in the sealed epoch {record.leader_epoch}"


def b5_log_order(history: History) -> Iterator[str]:
    stored = {record.value: record for record in history.stored}
    after: dict[Segment, frozenset[Segment]] = {}
    last: dict[tuple[str, str], Stored] = {}
    for send in history.sends:
        record = stored.get(send.value)
        if record is None:
            continue
        before = last.get((send.producer, send.key))
        last[send.producer, send.key] = record
        if before is None:
            continue
        if before.place == record.place:
            if before.offset >= record.offset:
                yield f"{before.value} at {_at(before.place, before.offset)}, {record.value} at {record.offset}"
            continue
        lineage = history.lineage(record.place[0])
        assert lineage is not None
        one = Segment(before.place[1], history.generation_of(before.place, before.leader_epoch))
        two = Segment(record.place[1], history.generation_of(record.place, record.leader_epoch))
        if two not in _reachable(lineage, one, after):
            yield f"{before.value} in segment {one}, {record.value} in segment {two}, which does not follow it"


def b6_regress(history: History) -> Iterator[str]:
    last: dict[tuple[str, str], int] = {}
    for one in history.seen:
        before = last.get((one.process, one.what), -1)
        if one.number < before:
            yield f"{one.process}: {one.what} goes from {before} to {one.number}"
        last[one.process, one.what] = max(before, one.number)


def b9_illegal_replay(history: History) -> Iterator[str]:
    """A member may begin anywhere up to what was read contiguously, and not above."""
    offsets = _stored_offsets(history)
    delivered: dict[Place, set[int]] = defaultdict(set)
    events: list[tuple[int, Delivery | Begun]] = [(one.order, one) for one in history.begun]
    events += [(one.order, one) for one in history.deliveries]
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, Delivery):
            delivered[event.place].add(event.offset)
            continue
        there = offsets.get(event.place, [])
        skipped = [one for one in there[: bisect_left(there, event.offset)] if one not in delivered[event.place]]
        if skipped:
            yield f"{event.consumer} begins at {_at(event.place, event.offset)}, and {skipped[:5]} went to nobody"


def b12_callbacks(history: History) -> Iterator[str]:
    """Whoever got the last record of a segment flushes before the first record of one that waited for it, unless it is
    dead by then, or the group gave the partition to somebody else without it; and the new owner is told before."""
    opened: dict[tuple[Place, int], int] = {}
    last: dict[tuple[Place, int], tuple[int, str]] = {}
    seen: set[tuple[Place, int]] = set()
    for delivery in history.deliveries:
        segment = (delivery.place, delivery.generation)
        opened.setdefault(segment, delivery.order)
        if (delivery.place, delivery.offset) not in seen:
            seen.add((delivery.place, delivery.offset))
            last[segment] = (delivery.order, delivery.consumer)
    flushed: dict[tuple[Place, str], list[int]] = defaultdict(list)
    told: dict[Place, list[int]] = defaultdict(list)
    for callback in history.callbacks:
        for place in callback.places:
            if callback.kind == "revoked":
                flushed[place, callback.consumer].append(callback.order)
            else:
                told[place].append(callback.order)
    died = {one.consumer: one.order for one in history.died}
    taken: dict[Place, list[tuple[int, str]]] = defaultdict(list)
    for begun in history.begun:
        taken[begun.place].append((begun.order, begun.consumer))
    for (place, generation), order in opened.items():
        lineage = history.lineage(place[0])
        before = () if lineage is None else _predecessors(lineage, Segment(place[1], generation))
        if before and bisect_left(told[place], order) == 0:
            yield f"{place} generation {generation} is delivered and its owner was not told"
        for one in before:
            parent = (place[0], one.partition)
            ended, consumer = last.get((parent, one.generation), (order, ""))
            if ended >= order or ended < died.get(consumer, -1) < order:
                continue
            if any(ended < at < order and other != consumer for at, other in taken[parent]):
                continue
            orders = flushed[parent, consumer]
            if bisect_left(orders, order) == bisect_left(orders, ended):
                yield f"{place} generation {generation} is delivered, and {consumer} has not flushed {parent}"


# --- the white box


def c1_leader_in_isr(history: History) -> Iterator[str]:
    for state in history.states:
        if state.leader >= 0 and state.leader not in state.isr:
            yield f"{state.place} epoch {state.leader_epoch}: leader {state.leader}, isr {list(state.isr)}"


def c2_strong_isr(history: History) -> Iterator[str]:
    for move in history.high_watermarks:
        if move.leads:
            for member, end in move.ends.items():
                if 0 <= end < move.after:
                    yield (
                        f"{move.place} epoch {move.leader_epoch}: leader {move.node} moves its high watermark from "
                        f"{move.before} to {move.after}, and {member} ends at {end}"
                    )


def c8_early_join(history: History) -> Iterator[str]:
    for one in history.proposals:
        for member in one.isr:
            if 0 <= one.ends.get(member, -1) < one.high_watermark:
                yield f"{one.place}: {member} is in sync with {one.ends[member]} of {one.high_watermark} records"


def c9_unfit_isr(history: History) -> Iterator[str]:
    for one in history.proposals:
        for member in one.isr:
            named, registered = one.named.get(member, -1), one.registered.get(member)
            if registered is None or (named >= 0 and named != registered):
                yield f"{one.place}: {member} joins with epoch {named}, registered is {registered}"


def c5_high_watermark_back(history: History) -> Iterator[str]:
    for move in history.high_watermarks:
        if move.after < move.before:
            yield f"{move.place} on {move.node}: from {move.before} to {move.after} in epoch {move.leader_epoch}"
    for cut in history.truncations:
        if cut.offset < cut.high_watermark:
            yield f"{cut.place} on {cut.node}: cut to {cut.offset}, below its high watermark {cut.high_watermark}"


def c6_epochs(history: History) -> Iterator[str]:
    last: dict[Place, tuple[int, int]] = {}
    leaders: dict[tuple[Place, int], int] = {}
    for state in history.states:
        epoch, leader = last.get(state.place, (-1, -1))
        if state.leader_epoch < epoch or (state.leader_epoch == epoch and state.leader != leader):
            yield f"{state.place}: {leader} in epoch {epoch}, then {state.leader} in epoch {state.leader_epoch}"
        last[state.place] = (state.leader_epoch, state.leader)
    for one in history.led:
        first = leaders.setdefault((one.place, one.leader_epoch), one.node)
        if first != one.node:
            yield f"{one.place}: {first} and {one.node} lead in epoch {one.leader_epoch}"


def c11_stale_controller(history: History) -> Iterator[str]:
    terms = sorted((one.order, one.session_id, one.epoch) for one in history.epochs)
    orders = [order for order, _, _ in terms]
    last: dict[Place, int] = {}
    for state in history.states:
        current = bisect_left(orders, state.order) - 1
        if current < 0 or terms[current][1] != state.session_id:
            holder = terms[current][1] if current >= 0 else None
            yield f"{state.place}: written by session {state.session_id}, in office was {holder}"
        elif state.controller_epoch != terms[current][2]:
            yield f"{state.place}: carries controller epoch {state.controller_epoch}, it is {terms[current][2]}"
        if state.controller_epoch < last.get(state.place, 0):
            yield f"{state.place}: controller epoch {state.controller_epoch} after {last[state.place]}"
        last[state.place] = max(last.get(state.place, 0), state.controller_epoch)


def c13_unsafe_ack(history: History) -> Iterator[str]:
    for ack in history.acks:
        if len(ack.isr) < ack.min_isr:
            yield f"{ack.place}: {ack.node} acknowledges {ack.end_offset} with isr {list(ack.isr)}, wants {ack.min_isr}"
        for member in ack.isr:
            if 0 <= ack.ends.get(member, -1) < ack.end_offset:
                yield f"{ack.place}: {ack.node} acknowledges {ack.end_offset}, and {member} ends at {ack.ends[member]}"


def c16_replicas_differ(history: History) -> Iterator[str]:
    for place, replicas in history.replicas.items():
        contents = sorted(replicas.items())
        for node, content in contents[1:]:
            if content != contents[0][1]:
                yield f"{place}: {len(contents[0][1])} bytes on {contents[0][0]}, {len(content)} others on {node}"


# --- shared


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]}@{offset}"


def _stored_offsets(history: History) -> dict[Place, list[int]]:
    offsets: dict[Place, list[int]] = defaultdict(list)
    for record in history.stored:
        offsets[record.place].append(record.offset)
    for there in offsets.values():
        there.sort()
    return offsets


def _first_deliveries(history: History) -> dict[tuple[Place, int], int]:
    first: dict[tuple[Place, int], int] = {}
    for delivery in history.deliveries:
        first.setdefault((delivery.place, delivery.offset), delivery.order)
    return first


def _segment_ends(history: History) -> dict[tuple[Place, int], int]:
    """Behind the last record of each segment."""
    ends: dict[tuple[Place, int], int] = {}
    for record in history.stored:
        segment = (record.place, history.generation_of(record.place, record.leader_epoch))
        ends[segment] = max(ends.get(segment, 0), record.offset + 1)
    return ends


def _predecessors(lineage: Lineage, segment: Segment) -> tuple[Segment, ...]:
    if segment.generation not in lineage.class_generations(segment.partition):
        return ()
    return lineage.predecessors(segment)


def _reachable(lineage: Lineage, start: Segment, known: dict[Segment, frozenset[Segment]]) -> frozenset[Segment]:
    """The segments that begin after this one has ended, along the lineage."""
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
    "A1 inconsistent-offsets": a1_inconsistent_offsets,
    "A2 duplicate": a2_duplicate,
    "A3 lost-write": a3_lost_write,
    "A4 unseen": a4_unseen,
    "A5 aborted-read": a5_aborted_read,
    "A6 phantom": a6_phantom,
    "A7 poll-skip": a7_poll_skip,
    "A9 nonmonotonic-poll": a9_nonmonotonic_poll,
    "A11 nonmonotonic-send": a11_nonmonotonic_send,
    "A17 real-time-order": a17_real_time_order,
    "A18 delivered-unsafe": a18_delivered_unsafe,
    "A20 epoch-order": a20_epoch_order,
    "A21 commit-lost": a21_commit_lost,
    "A22 zombie-commit": a22_zombie_commit,
    "A23 skipped-delivery": a23_skipped_delivery,
    "A24 double-ownership": a24_double_ownership,
    "A25 sequence-gap": a25_sequence_gap,
    "B1 key-order": b1_key_order,
    "B2 early-open": b2_early_open,
    "B3 misrouted": b3_misrouted,
    "B4 write-after-seal": b4_write_after_seal,
    "B5 log-order": b5_log_order,
    "B6 regress": b6_regress,
    "B9 illegal-replay": b9_illegal_replay,
    "B12 callbacks": b12_callbacks,
    "C1 leader-in-isr": c1_leader_in_isr,
    "C2 strong-isr": c2_strong_isr,
    "C8 early-join": c8_early_join,
    "C9 unfit-isr": c9_unfit_isr,
    "C5 high-watermark-back": c5_high_watermark_back,
    "C6 epochs": c6_epochs,
    "C11 stale-controller": c11_stale_controller,
    "C13 unsafe-ack": c13_unsafe_ack,
    "C16 replicas-differ": c16_replicas_differ,
}


def judge(history: History) -> list[str]:
    """Every violation, each with the name of its checker in front."""
    found = [
        f"{name}: {line}"
        for name, check in CHECKERS.items()
        if history.complete or name[0] == "C"  # the others compare with the final logs
        for line in check(history)
    ]
    return [*(f"run: {line}" for line in history.failures), *found]
