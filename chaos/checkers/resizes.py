"""Checks how brokers, controllers and clients execute a resize: cuts, generations, removals, unaffected partitions.

The rules are the invariants of the resize (`invariants` lists them); these are the ones that the order of records alone
does not show. They compare each component's state, writes and responses with what was committed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from anabranch.chaos.checkers.shared import Checker, at, was_removed_unread
from anabranch.chaos.history import Delivery, History, OffsetsReset, Place, ReadStart
from anabranch.chaos.resize_events import Retired, TopicWritten
from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import KeyEpoch, Lineage


def b14_boundary_moved(history: History) -> Iterator[str]:
    """A record of a leader epoch is at or behind the end that a later leader reported for that epoch (I2)."""
    reported: dict[Place, list[tuple[int, int, int]]] = defaultdict(list)
    for one in history.resizes.boundaries:
        reported[one.place].append((one.epoch, one.end_offset, one.node))
    for record in history.stored:
        for epoch, end, node in set(reported.get(record.place, ())):
            if record.leader_epoch <= epoch and record.offset >= end:
                where = at(record.place, record.offset)
                yield f"{where} of epoch {record.leader_epoch}: {node} said that {epoch} ends at {end}"


def b15_replay_order(history: History) -> Iterator[str]:
    """A record is given to the reader of its partition when the group is past a newer one of its key elsewhere (I4).

    Repetitions count, unlike in B1: after a crash the newer record must be repeated too. What a member reads after its
    partition has started for another member is Kafka's at-least-once, and not checked. A reset of offsets moves the
    group back; with the lineage, the order is that of the first time, and without it nothing is promised. Only records
    of partitions that had been removed by then are out of its reach. Left out are records that were deleted unread with
    their partition, and are delivered where they had been fetched.
    """
    sent = {send.value: send for send in history.sends}
    reader: dict[Place, tuple[str, int]] = {}
    position: dict[Place, int] = {}
    held: dict[tuple[str, str], dict[Place, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    removed: dict[Place, int] = {}
    events: list[tuple[int, Delivery | ReadStart | OffsetsReset | Retired]] = [
        (one.order, one) for one in history.read_starts
    ]
    events += [(one.order, one) for one in history.deliveries]
    events += [(one.order, one) for one in history.resets if one.outcome != "fail"]
    events += [(one.order, one) for one in history.resizes.retired]
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, Retired):
            removed[event.place] = event.end_offset
            continue
        if isinstance(event, OffsetsReset):
            for place, offset in event.offsets.items():
                position[place] = min(offset, position.get(place, offset))
            for of_key in held.values():
                for place, rows in of_key.items():
                    begins, back_to = removed.get(place, 0), event.offsets.get(place)
                    rows[:] = [row for row in rows if row[0] >= begins]  # removed partitions are not delivered again
                    if back_to is None and not event.with_lineage:
                        rows.clear()
                    if back_to is not None:  # the rest is delivered again, or it is deleted
                        rows[:] = [row for row in rows if row[0] < back_to and not history.deleted(place, row[0])]
            continue
        if isinstance(event, ReadStart):
            reader[event.place], position[event.place] = (event.consumer, event.run), event.offset
            continue
        if reader.get(event.place) != (event.consumer, event.run):
            continue
        position[event.place] = event.offset + 1
        send = sent.get(event.value)
        if send is None or was_removed_unread(history, event):
            continue
        places = held[send.producer, send.key]
        for place, rows in places.items():
            passed = bisect_left(rows, (position.get(place, 0), -1))
            if place != event.place and passed and rows[passed - 1][1] > send.sequence:
                younger = at(place, rows[passed - 1][0])
                yield f"{event.value} at {at(event.place, event.offset)}, and the group is past {younger}"
        rows = places[event.place]
        row = (event.offset, send.sequence)
        if rows[bisect_left(rows, row) : bisect_right(rows, row)] != [row]:
            insort(rows, row)


def b16_generation_falls(history: History) -> Iterator[str]:
    """In a log, a leader epoch or its generation is lower than one before it (I1)."""
    last: dict[Place, tuple[int, int]] = {}
    for record in sorted(history.stored, key=lambda one: (one.place, one.offset)):
        generation = history.generation_of(record.place, record.leader_epoch)
        epoch_before, before = last.get(record.place, (-1, -1))
        if record.leader_epoch < epoch_before or generation < before:
            where = at(record.place, record.offset)
            yield f"{where}: epoch {record.leader_epoch}, generation {generation} after {epoch_before} and {before}"
        last[record.place] = (record.leader_epoch, generation)


def b17_index_reused(history: History) -> Iterator[str]:
    """A reused index starts in an epoch, or at an offset, that its earlier incarnation had (I7)."""
    for tombstone in history.resizes.retired:
        for state in history.states:
            begins = state.version == 0 and state.place == tombstone.place and state.order > tombstone.order
            if begins and state.leader_epoch <= tombstone.leader_epoch:
                yield f"{state.place} has epoch {state.leader_epoch} again, it was removed in {tombstone.leader_epoch}"
        for record in history.stored:
            new_life = record.leader_epoch > tombstone.leader_epoch
            if record.place == tombstone.place and new_life != (record.offset >= tombstone.end_offset):
                where = at(record.place, record.offset)
                ended = f"it ended at {tombstone.end_offset} in {tombstone.leader_epoch}"
                yield f"{where} of epoch {record.leader_epoch}; {ended}"


def b18_shown_too_early(history: History) -> Iterator[str]:
    """A response shows a leader epoch in which a partition serves a newer generation than the topic's (I9, R12)."""
    generations: dict[tuple[Place, str], list[tuple[int, int]]] = defaultdict(list)
    for state in history.states:
        known = generations[state.place, state.topic_id]
        if not known or known[-1][1] != state.generation:
            known.append((state.leader_epoch, state.generation))
    for one in history.resizes.shown:
        for index, epoch in one.epochs.items():
            known = generations[(one.topic, index), one.topic_id]
            serves = max((g for first, g in known if first <= epoch), default=0)
            if serves > one.generation:
                where = f"{one.topic}-{index} in epoch {epoch}, which is of {serves}"
                yield f"{one.process} sees {where}, and generation {one.generation}"


def b19_removed_too_early(history: History) -> Iterator[str]:
    """A partition is removed that is not sealed, not empty, or has an open transaction; or it is written to later
    (I10).
    """
    for tombstone in history.resizes.retired:
        if not tombstone.sealed:
            yield f"{tombstone.place} is removed in epoch {tombstone.leader_epoch} and is not sealed"
        log = tombstone.logs.get(tombstone.leader)
        if log is not None and set(log) != {tombstone.end_offset}:
            found = f"its log has (start, end, stable) {log}"
            yield f"{tombstone.place} is removed with the end {tombstone.end_offset}; {found}"
        for send in history.sends:
            late = send.outcome == "ok" and send.place == tombstone.place and send.order > tombstone.order
            if late and send.offset < tombstone.end_offset:
                yield f"{send.value} is acknowledged at {at(tombstone.place, send.offset)}, which was removed"


def b20_unaffected_touched(history: History) -> Iterator[str]:
    """A resize changes, fences, refuses or gates a partition whose keys it does not move (I13)."""
    affected = _affected(history)
    windows = _windows(history)
    last: dict[tuple[Place, str], tuple[int, int, tuple[int, ...], int, bool]] = {}
    for state in history.states:
        topic, index = (state.place[0], state.topic_id), state.place[1]
        now = (state.leader_epoch, state.leader, state.isr, state.generation, state.sealed)
        before = last.get((state.place, state.topic_id))
        last[state.place, state.topic_id] = now
        if before is None:
            continue
        if state.generation != before[3] and index not in affected.get((*topic, state.generation), {index}):
            yield f"{state.place} goes to generation {state.generation}, which does not move its keys"
        if before[0] < now[0] and before[1:] == now[1:]:
            for began, ended, generation in windows.get(topic, ()):
                if began < state.order < ended and index not in affected[*topic, generation]:
                    yield f"{state.place} is fenced in epoch {now[0]} by a resize that does not move its keys"
    for refusal in history.resizes.refused:
        lineage = history.lineage(refusal.place[0])
        if lineage is not None and not _refusable(
            lineage, refusal.place[1], refusal.batch_generation, refusal.generation
        ):
            same = f"{refusal.batch_generation}, with the same keys"
            yield f"{refusal.place} of generation {refusal.generation} refuses {same}"
    for gate in history.resizes.gated:
        lineage = history.lineage(gate.topic)
        if lineage is not None and not _waits_for_anything(lineage, gate.key_epoch):
            yield f"{gate.consumer} finds {gate.topic}-{gate.key_epoch} closed, which waits for nothing"


def b21_step_repeated(history: History) -> Iterator[str]:
    """A step of a resize has an effect twice: a plan, a cut, a publication or a removal (I14)."""
    entered: dict[tuple[Place, str], list[int]] = defaultdict(list)
    for state in history.states:
        known = entered[state.place, state.topic_id]
        if not known or known[-1] != state.generation:
            if known and state.generation <= max(known):
                yield f"{state.place} goes from generation {known[-1]} to {state.generation}"
            known.append(state.generation)
    last: dict[tuple[str, str], TopicWritten] = {}
    for row in history.resizes.topics:
        before = last.get((row.topic, row.topic_id))
        last[row.topic, row.topic_id] = row
        if before is None:
            continue
        if row.generation not in (before.generation, before.generation + 1):
            yield f"{row.topic} goes from generation {before.generation} to {row.generation}"
        if row.generation > before.generation and (before.plan is None or before.plan[0] != row.generation):
            yield f"{row.topic} goes to generation {row.generation}, and the plan was {before.plan}"
        if row.plan is not None and (before.plan or row.plan) != row.plan:
            yield f"the plan of {row.topic} changes from {before.plan} to {row.plan}"
        if row.plan is not None and row.plan[0] != row.generation + 1:
            yield f"{row.topic} of generation {row.generation} has the plan {row.plan}"
    tombstones: dict[Place, int] = {}
    for tombstone in history.resizes.retired:
        if tombstone.leader_epoch <= tombstones.get(tombstone.place, -1):
            yield f"{tombstone.place} is removed in epoch {tombstone.leader_epoch}, after {tombstones[tombstone.place]}"
        tombstones[tombstone.place] = tombstone.leader_epoch


def b22_legacy_touched(history: History) -> Iterator[str]:
    """A topic that was never resized has a generation, a seal, a refusal or a gate (I15)."""
    resized = {row.topic for row in history.resizes.topics if row.plan is not None or row.generation > 0}
    if not history.resizes.topics:
        return
    for state in history.states:
        if state.place[0] not in resized and (state.generation or state.sealed):
            yield f"{state.place} serves generation {state.generation}{', sealed' if state.sealed else ''}"
    for refusal in history.resizes.refused:
        if refusal.place[0] not in resized:
            yield f"{refusal.place} refuses a batch of generation {refusal.batch_generation}"
    for gate in history.resizes.gated:
        if gate.topic not in resized:
            yield f"{gate.consumer} finds {gate.topic}-{gate.key_epoch} closed"


def b23_mark_late(history: History) -> Iterator[str]:
    """A batch with a generation is accepted before its topic is marked, or a mark is removed (R16, I15)."""
    marked: dict[str, int] = {}
    lives: set[tuple[str, str]] = set()
    for row in history.resizes.topics:
        if row.has_generations:
            marked.setdefault(row.topic, row.order)
            lives.add((row.topic, row.topic_id))
        elif (row.topic, row.topic_id) in lives and row.topic not in history.gone:
            yield f"{row.topic} was marked, and is no more"
    for one in history.resizes.let_in if history.resizes.topics else ():
        if (
            one.has_generations
            and marked.get(one.place[0], one.order) >= one.order
            and one.place[0] not in history.gone
        ):
            yield f"{one.node} lets a batch of generation {one.generation} into {one.place}, which is not marked"


def b24_outsider_let_in(history: History) -> Iterator[str]:
    """A batch without a generation is accepted in a generation planned after the topic became ordered (R16, I15)."""
    planned: dict[tuple[str, int], bool] = {}
    for row in history.resizes.topics:
        if row.plan is not None:
            planned.setdefault((row.topic, row.plan[0]), row.has_generations)
    for one in history.resizes.let_in:
        if one.has_generations or one.generation == 0 or one.policy in ("allow", "verify"):
            continue
        if one.policy == "refuse" or planned.get((one.place[0], one.generation)):
            yield f"{one.node} lets a batch without a generation into {one.place}, generation {one.generation}"


def _affected(history: History) -> dict[tuple[str, str, int], frozenset[int]]:
    """Return (topic, its id, generation) -> the partitions whose keys it moves, by the plans."""
    return {
        (row.topic, row.topic_id, row.plan[0]): frozenset(
            linear_hashing.affected_partitions(row.base, row.plan[1], row.plan[2])
        )
        for row in history.resizes.topics
        if row.plan is not None
    }


def _windows(history: History) -> dict[tuple[str, str], list[tuple[int, int, int]]]:
    """Return the period of each plan of a topic and its id: from, to, generation."""
    windows: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for row in history.resizes.topics:
        known = windows[row.topic, row.topic_id]
        if known and known[-1][1] == _OPEN and (row.plan is None or row.plan[0] != known[-1][2]):
            known[-1] = (known[-1][0], row.order, known[-1][2])
        if row.plan is not None and (not known or known[-1][2] != row.plan[0]):
            known.append((row.order, _OPEN, row.plan[0]))
    return windows


_OPEN: Final = 1 << 62


def _refusable(lineage: Lineage, index: int, batch_generation: int, generation: int) -> bool:
    """Whether the keys of a partition changed between two generations; a generation not published yet is a change."""
    low, high = sorted((batch_generation, generation))
    return high > lineage.generation or any(low < one <= high for one in lineage.class_generations(index))


def _waits_for_anything(lineage: Lineage, key_epoch: KeyEpoch) -> bool:
    todo, seen = [key_epoch], {key_epoch}
    while todo:
        one = todo.pop()
        if one.generation not in lineage.class_generations(one.partition) or lineage.predecessors(one):
            return True
        before = lineage.previous(one)
        if before is not None and before not in seen:
            seen.add(before)
            todo.append(before)
    return False


CHECKERS: Final[dict[str, Checker]] = {
    "B14 boundary-moved": b14_boundary_moved,
    "B15 replay-order": b15_replay_order,
    "B16 generation-falls": b16_generation_falls,
    "B17 index-reused": b17_index_reused,
    "B18 shown-too-early": b18_shown_too_early,
    "B19 removed-too-early": b19_removed_too_early,
    "B20 unaffected-touched": b20_unaffected_touched,
    "B21 step-repeated": b21_step_repeated,
    "B22 legacy-touched": b22_legacy_touched,
    "B23 mark-late": b23_mark_late,
    "B24 outsider-let-in": b24_outsider_let_in,
}
