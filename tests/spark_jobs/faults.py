"""The fault matrix: every kind of violation, planted at every place of a valid history.

    faults      what is done to the deliveries, and as what it must be found (`FAULTS`)
    places      at the first, a middle and the last record of a key
    contexts    within a batch; across a batch boundary; across a restart; across a resize; in a key that was quiet

A fault must be found as what it is, in its own key, and nothing else may be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from anabranch.protocol import audit as wire
from anabranch.spark_jobs.bucket import QUIET_MS
from anabranch.spark_jobs.verdict import (
    BEFORE_GATE,
    LOST,
    OUT_OF_ORDER,
    REPEATED,
    TWO_OWNERS,
    UNAUDITED,
    WRONG_PAYLOAD,
)
from tests.spark_jobs import histories
from tests.spark_jobs.histories import Audited, Handed, History, Record

PLACES = ("first", "middle", "last")
CONTEXTS = ("batch", "boundary", "restart", "resize", "quiet")
COUNTS = (2, 4, 2, 4)
BELOW_THE_BASE = (3, 2, 1, 5)
"""The odd part of the first is 3: a partition then holds keys that are not one residue of their hashes."""
RECORDS = 5
"""Of each key in each generation."""
LENGTH = RECORDS * len(COUNTS)
_EDGES = {"first": RECORDS, "middle": 2 * RECORDS, "last": 3 * RECORDS}
"""The first sequence of a key after each resize."""

Written = list[tuple[int, bytes]]


class Misfit(Exception):
    """The history that the seed gives has no room for this fault; another one will."""


class Case(NamedTuple):
    """One cell of the matrix."""

    fault: str
    place: str
    context: str

    def __str__(self) -> str:
        return f"{self.fault}, {self.place} record, {self.context}"


@dataclass
class Scene:
    """A history, one of its keys with a single reader, and the two deliveries of the fault."""

    history: History
    key: bytes
    sequence: int
    """Of the earlier one of two records in a row."""

    def at(self, sequence: int) -> int:
        """Where a record of the key is delivered."""
        return next(
            index
            for index, one in enumerate(self.history.handed)
            if one.key == self.key and one.record.sequence == sequence
        )

    def one(self, sequence: int) -> Handed:
        """The delivery of a record of the key."""
        return self.history.handed[self.at(sequence)]


def swap(scene: Scene) -> Handed:
    """A record is handed out after the next one of its key."""
    handed = scene.history.handed
    moved = handed.pop(scene.at(scene.sequence))
    moved = replace(
        moved,
        incarnation=scene.one(scene.sequence + 1).incarnation,
        pause_ms=0,
        group_generation=scene.one(scene.sequence + 1).group_generation,
    )
    handed.insert(scene.at(scene.sequence + 1) + 1, moved)
    return moved


def lose(scene: Scene) -> Handed:
    """A record is passed over."""
    return scene.history.handed.pop(scene.at(scene.sequence))


def hand_out_again(scene: Scene) -> Handed:
    """A record is handed out again after the next one of its key, which is not."""
    handed = scene.history.handed
    behind = scene.one(scene.sequence + 1)
    before = scene.one(scene.sequence)
    again = replace(before, incarnation=behind.incarnation, group_generation=behind.group_generation, pause_ms=0)
    place = scene.at(scene.sequence + 1)
    bucket = histories.bucket_of(before)
    if before.record.partition == behind.record.partition and not any(
        histories.bucket_of(one) == bucket
        and one.record.partition == before.record.partition
        and one.record.offset > behind.record.offset
        for one in handed[place + 1 :]
    ):
        raise Misfit("nothing follows: it may be a repetition that goes on")
    handed.insert(place + 1, again)
    return again


def hand_out_twice(scene: Scene) -> Handed:
    """The same member delivers a record twice in a row, without a seek."""
    twin = replace(scene.one(scene.sequence), pause_ms=0)
    scene.history.handed.insert(scene.at(scene.sequence) + 1, twin)
    return twin


def store_twice(scene: Scene) -> Handed:
    """A record is stored a second time, and handed out a second time."""
    history, before = scene.history, scene.one(scene.sequence)
    twin = replace(before.record, offset=before.record.offset + 1)
    history.stored.insert(history.stored.index(before.record) + 1, twin)
    again = replace(before, record=twin, pause_ms=0)
    history.handed.insert(scene.at(scene.sequence) + 1, again)
    return again


def garble(scene: Scene) -> Handed:
    """What is handed out is not what is stored."""
    garbled = replace(scene.one(scene.sequence), fingerprint=4711)
    scene.history.handed[scene.at(scene.sequence)] = garbled
    return garbled


def hand_out_by_two(scene: Scene) -> Handed:
    """A member whose partition has its next owner already hands out a record, too."""
    by = scene.one(scene.sequence)
    rival = replace(by, incarnation=4711, group_generation=by.group_generation - 1, pause_ms=0)
    scene.history.handed.insert(scene.at(scene.sequence) + 1, rival)
    return rival


def drop_event(scene: Scene) -> Handed:
    """A delivery does not reach the audit topic, although it has a number: see `spoil`."""
    return scene.one(scene.sequence)


def quieten(scene: Scene, planted: Handed, *, between: bool) -> Handed:
    """Let hours pass in which only one other key of the bucket is heard of: before the guilty delivery, or its pair."""
    bucket = histories.bucket_of(planted)
    names = (b"clock-%d" % number for number in range(10_000))
    name = next(name for name in names if wire.bucket_of(wire.key_hash(name, 0)) == bucket)
    tick = Handed(Record(name, 1, 0, 99, 0, len(COUNTS) - 1), 4712, 10**6, pause_ms=2 * QUIET_MS)
    handed, following = scene.history.handed, scene.sequence + 1
    if between:
        at = next(index for index, one in enumerate(handed) if one is planted)
    else:
        at = scene.at(following) if following < LENGTH else len(handed)
    handed.insert(at, tick)
    scene.history.stored.append(tick.record)
    return tick


class Fault(NamedTuple):
    """What is done, and what must be found."""

    plant: Callable[[Scene], Handed]
    kind: str
    across: str
    """What must be found if it happens across a resize."""


FAULTS = {
    "out of order": Fault(swap, OUT_OF_ORDER, BEFORE_GATE),
    "lost": Fault(lose, LOST, LOST),
    "handed out again": Fault(hand_out_again, REPEATED, OUT_OF_ORDER),
    "handed out twice in a row": Fault(hand_out_twice, REPEATED, REPEATED),
    "stored twice": Fault(store_twice, REPEATED, REPEATED),
    "wrong payload": Fault(garble, WRONG_PAYLOAD, WRONG_PAYLOAD),
    "two owners": Fault(hand_out_by_two, TWO_OWNERS, TWO_OWNERS),
    "audit event missing": Fault(drop_event, UNAUDITED, UNAUDITED),
}
ALSO = {UNAUDITED: {LOST}}
"""What else is true then: nobody knows whether a delivery that was not told of has happened."""


def cases() -> list[Case]:
    """All of the matrix."""
    return [Case(fault, place, context) for fault in FAULTS for place in PLACES for context in CONTEXTS]


def run(case: Case, seed: int, counts: Sequence[int] = COUNTS) -> tuple[Audited, Handed]:
    """Plant a fault, and audit what comes of it. `Misfit`"""
    written, stored, cuts, planted = prepare(case, seed, counts)
    return histories.audit(written, stored, cuts=cuts, restarts=case.context != "boundary"), planted


def prepare(
    case: Case, seed: int, counts: Sequence[int] = COUNTS
) -> tuple[Written, list[Record], Sequence[int], Handed]:
    """Plant a fault: audit records, stored ones, where batches have to end, and the guilty delivery. `Misfit`"""
    rng = random.Random(seed)
    history = histories.make(rng, records=RECORDS, counts=counts, crashes=2)
    once = [
        key
        for key in sorted({one.key for one in history.handed})
        if sum(one.key == key for one in history.handed) == LENGTH
    ]
    if not once:
        raise Misfit("every key is read twice somewhere")
    pair = FAULTS[case.fault].plant in (swap, hand_out_again)
    if case.context == "resize":
        sequence = _EDGES[case.place] - pair
    else:
        sequence = {"first": 0, "middle": LENGTH // 2 + 1, "last": LENGTH - 1 - pair}[case.place]
    scene = Scene(history, rng.choice(once), sequence)
    plant = FAULTS[case.fault].plant
    if pair and case.context == "resize":
        generations = {scene.one(one).record.generation for one in (sequence, sequence + 1)}
        if len(generations) == 1:
            raise Misfit("the resize does not touch the partition of the key")
    planted = plant(scene)
    pause = quieten(scene, planted, between=plant not in (swap, lose)) if case.context == "quiet" else None
    timed = history.timed()
    written = histories.runs(timed)
    holding = [
        index for index, (_, value) in enumerate(written) if any(_is(one, planted) for one in wire.decode_events(value))
    ]
    where = holding[0] if holding else rng.randrange(len(written))
    if case.fault == "audit event missing":
        number = max(one.number for one in wire.decode_events(written.pop(where)[1]))
        following = [one for _, value in written[where:] for one in wire.decode_events(value)]
        same = [
            one
            for one in following
            if one.incarnation == planted.incarnation and wire.bucket_of(one.key_hash) == histories.bucket_of(planted)
        ]
        if case.place != "last" and not any(one.number > number for one in same):
            raise Misfit("it was the last event of its member: that leaves no hole")
    cuts: Sequence[int] = ()
    if case.context in ("boundary", "restart"):
        cuts = sorted({*rng.sample(range(len(written)), 3), where, min(where + 1, len(written))})
    elif case.context == "resize":
        cuts = sorted(rng.sample(range(len(written)), 4))
    elif pause is not None:
        cuts = [
            index + 1
            for index, (_, value) in enumerate(written)
            if any(_is(one, pause) for one in wire.decode_events(value))
        ]
    return written, history.stored, cuts, planted


def _is(delivery: wire.Delivery, planted: Handed) -> bool:
    return (delivery.key, delivery.offset, delivery.incarnation) == (
        planted.key,
        planted.record.offset,
        planted.incarnation,
    )


def judge(case: Case, audited: Audited, planted: Handed) -> str | None:
    """What is wrong with what was found; nothing, if the fault was caught and nothing else was."""
    fault = FAULTS[case.fault]
    expected = fault.across if case.context == "resize" else fault.kind
    allowed = {expected} | ALSO.get(expected, set())
    if case.fault == "handed out again" and case.context == "resize":
        allowed |= {REPEATED}
    # The last event of a member leaves no hole behind: only what is stored tells that something is missing.
    other_will_do = case.context == "resize" or (expected == UNAUDITED and case.place == "last")
    kinds = {one.kind for one in audited.violations}
    if not kinds & allowed or (expected not in kinds and not other_will_do):
        return f"found {sorted(kinds) or 'nothing'} where {expected} was planted"
    if kinds - allowed:
        return f"found {sorted(kinds - allowed)} as well"
    others = {one.key for one in audited.violations if one.key is not None} - {planted.key}
    if others and UNAUDITED not in kinds:
        return f"found violations of {sorted(others)}, which are innocent"
    return None


def everything(rng: random.Random) -> tuple[History, tuple[bytes, int]]:
    """A history with every fault, each in a key of its own; and which delivery is to be left out of the audit topic.

    Of one bucket nothing is heard any more after the beginning: what was counted there is never counted again.
    """
    history = histories.make(rng, keys=40, records=RECORDS, counts=COUNTS, crashes=1)
    fall_silent(history)
    once = (
        key
        for key in sorted({one.key for one in history.handed})
        if sum(one.key == key for one in history.handed) == LENGTH
    )
    swap(Scene(history, next(once), RECORDS - 1))
    for fault in FAULTS.values():
        key = next(once)
        fault.plant(Scene(history, key, LENGTH // 2 + 1))
    return history, (key, LENGTH // 2 + 1)


def fall_silent(history: History) -> None:
    """Store and hand out no more than the first two records of each key of one bucket: the smallest."""
    buckets = [wire.bucket_of(wire.key_hash(key, 0)) for key in {one.key for one in history.stored}]
    silent = min(set(buckets), key=lambda bucket: (buckets.count(bucket), bucket))

    def is_heard(one: Record) -> bool:
        return one.sequence < 2 or wire.bucket_of(wire.key_hash(one.key, 0)) != silent

    history.stored = [one for one in history.stored if is_heard(one)]
    history.handed = [one for one in history.handed if is_heard(one.record)]


def spoil(written: Written, missing: tuple[bytes, int]) -> Written:
    """What the audit topic gets: a run is missing, and others stand twice."""
    key, sequence = missing
    lost = next(
        index
        for index, (_, value) in enumerate(written)
        if any((one.key, one.sequence) == (key, sequence) for one in wire.decode_events(value))
    )
    spoiled = [*written[:lost], *written[lost + 1 :]]
    for index in range(len(spoiled) - 1, 0, -17):
        spoiled.insert(index, spoiled[index - 1])
    return spoiled
