"""Violations of each kind, planted in one history, are found by the checkers, by the judge and by the audit.

The three share no code. The audit receives deliveries and stored records without partition placement or leader epochs,
so two kinds are beyond it: the table says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from anabranch.chaos import checkers
from anabranch.chaos.history import Callback, Delivery, History, Place, Published, ReadStart, Send, StateWritten, Stored
from anabranch.chaos.second_opinion import judge_again, judge_members
from anabranch.judge import delivered_order, stored_order
from anabranch.protocol.linear_hashing import base_of
from tests.spark_jobs import histories
from tests.spark_jobs.histories import TOPIC, Handed, Record

COUNTS = (2, 4, 2)
EPOCHS_PER_GENERATION = 10
NOT_SEEN = ""


@dataclass
class Scene:
    """A generated history, and what a violation changes beside it."""

    made: histories.History
    acknowledged: list[Record] = field(default_factory=list)
    leader_epochs: dict[Record, int] = field(default_factory=dict)

    @property
    def middle(self) -> Record:
        """A record in the middle of its key, and of its partition."""
        return next(one for one in self.made.stored if one.sequence == 2)

    def first_delivery(self, record: Record) -> int:
        return next(index for index, one in enumerate(self.made.handed) if one.record == record)

    def history(self) -> History:
        """The same as clients and logs show it."""
        found = History(published=[Published(0, TOPIC, base_of(COUNTS[0]), tuple(enumerate(COUNTS)))])
        for one in self.acknowledged:
            found.sends.append(_sent(found, one))
        for generation in range(len(COUNTS)):
            for partition in range(max(COUNTS)):
                found.states.append(_state(found, (TOPIC, partition), generation))
        for one in self.made.stored:
            epoch = self.leader_epochs.get(one, EPOCHS_PER_GENERATION * one.generation)
            found.stored.append(Stored((TOPIC, one.partition), one.offset, epoch, one.key.decode(), _value(one)))
        starts: set[tuple[int, Place]] = set()
        for handed in self.made.handed:
            found.deliveries.append(_delivered(found, handed, starts))
        return found


def _value(one: Record) -> str:
    return one.value.decode()


def _sent(history: History, one: Record) -> Send:
    key, place = one.key.decode(), (TOPIC, one.partition)
    order = history.tick()
    return Send(order, "w", key, one.sequence, _value(one), "ok", place, one.offset, order)


def _state(history: History, place: Place, generation: int) -> StateWritten:
    return StateWritten(
        history.tick(), place, generation, 1, EPOCHS_PER_GENERATION * generation, (1,), 1, generation=generation
    )


def _delivered(history: History, one: Handed, starts: set[tuple[int, Place]]) -> Delivery:
    member, place = f"member-{one.incarnation}", (TOPIC, one.record.partition)
    if (one.incarnation, place) not in starts:
        starts.add((one.incarnation, place))
        history.read_starts.append(ReadStart(history.tick(), member, 1, place, one.record.offset, one.group_generation))
    return Delivery(
        history.tick(),
        member,
        1,
        place,
        one.record.offset,
        one.key.decode(),
        _value(one.record),
        one.record.generation,
        one.group_generation,
    )


def made() -> Scene:
    scene = Scene(histories.make(random.Random(7), counts=COUNTS, crashes=1))
    scene.acknowledged = list(scene.made.stored)
    return scene


def swap_deliveries(scene: Scene) -> None:
    handed = scene.made.handed
    here = scene.first_delivery(scene.middle)
    later = next(
        index
        for index, one in enumerate(handed)
        if one.key == scene.middle.key and one.record.sequence == scene.middle.sequence + 1
    )
    handed[here], handed[later] = handed[later], handed[here]


def lose(scene: Scene) -> None:
    gone = scene.middle
    scene.made.stored.remove(gone)
    scene.made.handed[:] = [one for one in scene.made.handed if one.record != gone]


def store_twice(scene: Scene) -> None:
    once = scene.middle
    twice = replace(once, offset=once.offset + 1)  # odd offsets are free
    scene.made.stored.insert(scene.made.stored.index(once) + 1, twice)
    here = scene.first_delivery(once)
    scene.made.handed.insert(here + 1, replace(scene.made.handed[here], record=twice))


def misplace(scene: Scene) -> None:
    right = scene.middle
    wrong = replace(right, partition=1 - right.partition, offset=right.offset + 1)
    scene.acknowledged[scene.acknowledged.index(right)] = wrong
    scene.made.stored[scene.made.stored.index(right)] = wrong
    scene.made.handed[:] = [replace(one, record=wrong) if one.record == right else one for one in scene.made.handed]


def deliver_by_stale_owner(scene: Scene) -> None:
    handed = scene.made.handed
    owners: dict[int, Handed] = {}
    for index, one in enumerate(handed):
        before = owners.setdefault(one.record.partition, one)
        if before.group_generation < one.group_generation and before.incarnation != one.incarnation:
            stale = replace(one, incarnation=before.incarnation, group_generation=before.group_generation)
            handed.insert(index + 1, stale)
            return
    raise AssertionError("no partition got another owner")


def lower_leader_epoch(scene: Scene) -> None:
    late = next(one for one in reversed(scene.made.stored) if one.generation)
    scene.leader_epochs[late] = 0


def never_deliver(scene: Scene) -> None:
    missing = scene.middle
    scene.made.handed[:] = [one for one in scene.made.handed if one.record != missing]


def deliver_another_record(scene: Scene) -> None:
    """The records of two keys change places between the log and the member."""
    here = scene.made.handed[-1]
    other = next(one for one in scene.made.stored if one.key != here.key)
    wrong = replace(here.record, key=other.key, sequence=other.sequence)
    scene.made.handed.append(replace(here, record=wrong))


@dataclass(frozen=True)
class Kind:
    """A violation, and by what name each of the three reports it."""

    plant: Callable[[Scene], None]
    checker: str
    judge: str
    audit: str


TABLE = {
    "order": Kind(swap_deliveries, "B1", delivered_order.OUT_OF_ORDER, "out_of_order"),
    "loss": Kind(lose, "A4", stored_order.LOST, "lost"),
    "repetition": Kind(store_twice, "A2", stored_order.TWICE, "repeated"),
    "misplaced": Kind(misplace, "B3", stored_order.MISPLACED, NOT_SEEN),
    "stale owner": Kind(deliver_by_stale_owner, "A40", delivered_order.STALE_OWNER, "two_owners"),
    "epochs": Kind(lower_leader_epoch, "A20", stored_order.EPOCH_BACK, NOT_SEEN),
    "liveness": Kind(never_deliver, "A4", delivered_order.NEVER, "lost"),
    "another record": Kind(deliver_another_record, "A1", delivered_order.PHANTOM, "repeated"),
}


def found_by_checkers(history: History) -> set[str]:
    return {line.split()[0] for line in checkers.judge(history)}


def found_by_audit(scene: Scene) -> set[str]:
    written = histories.runs(scene.made.timed())
    return {one.kind for one in histories.audit(written, scene.made.stored).violations}


def test_history_without_violation_has_none_by_judge_and_audit() -> None:
    scene = made()
    assert judge_again(scene.history()) == []
    assert found_by_audit(scene) == set()
    assert not found_by_checkers(scene.history()) & {row.checker for row in TABLE.values()}


@pytest.mark.parametrize("kind", TABLE)
def test_violation_of_each_kind_is_found_by_checkers_judge_and_audit(kind: str) -> None:
    row, scene = TABLE[kind], made()
    row.plant(scene)
    history = scene.history()
    assert row.checker in found_by_checkers(history)
    assert any(row.judge in line for line in judge_again(history)), judge_again(history)
    assert found_by_audit(scene) == ({row.audit} if row.audit else set())


@pytest.mark.parametrize(("kind", "violations"), [("lost", 0), ("revoked", 1)])
def test_repetition_in_one_generation_is_judged_unless_the_partition_was_lost(kind: Any, violations: int) -> None:
    history = made().history()
    one = history.deliveries[-1]
    history.callbacks.append(Callback(history.tick(), one.consumer, kind, (one.place,)))
    history.deliveries.append(replace(one, order=history.tick()))
    assert len(judge_again(history)) == violations


def test_group_of_other_clients_is_judged_by_order_and_completeness() -> None:
    scene = made()
    history = scene.history()
    first = {one.value: one for one in reversed(history.deliveries)}  # without redeliveries
    deliveries = [replace(one, group_generation=-1) for one in history.deliveries if first[one.value] is one]
    assert judge_members("stock", TOPIC, history.sends, deliveries) == []
    missing = judge_members("stock", TOPIC, history.sends, deliveries[1:])
    assert len(missing) == 1 and missing[0].startswith("judge: stock: never delivered: ")
    assert any("out of order" in line for line in judge_members("stock", TOPIC, history.sends, deliveries[::-1]))
