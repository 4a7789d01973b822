"""All checks: valid histories pass, planted violations are found, and batches change nothing."""

from __future__ import annotations

import itertools
import random

import pytest

from anabranch.protocol import audit as wire
from anabranch.spark_jobs.bucket import Bucket
from anabranch.spark_jobs.checks import check
from anabranch.spark_jobs.verdict import BEFORE_GATE, KINDS, LATE, LOST, OUT_OF_ORDER, REPEATED, UNAUDITED, clean
from tests.cases import costly
from tests.spark_jobs import faults, histories
from tests.spark_jobs.faults import Case, Misfit
from tests.spark_jobs.histories import Handed

SEEDS_TRIED = 40
MATRIX = [
    *((case, faults.COUNTS) for case in faults.cases()),
    *((case, faults.BELOW_THE_BASE) for case in faults.cases() if case.context == "resize"),
]


def is_chosen(case: Case) -> bool:
    """Whether a case is one of the third that has every two of fault, place and context together."""
    axes = (tuple(faults.FAULTS), faults.PLACES, faults.CONTEXTS)
    return sum(axis.index(value) for axis, value in zip(axes, case, strict=True)) % len(faults.PLACES) == 0


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "by place alone"])
@pytest.mark.parametrize("counts", [(2, 4, 8, 2), faults.BELOW_THE_BASE], ids=str)
@pytest.mark.parametrize("seed", [*range(4), *costly(range(4, 10))])
def test_member_failures_and_resizes_are_no_violation(seed: int, counts: tuple[int, ...], numbered: bool) -> None:
    """Also with different clocks, in every other seed."""
    rng = random.Random(seed)
    history = histories.make(rng, numbered=numbered, counts=counts, crashes=4)
    history = histories.skewed(history, rng) if seed % 2 else history
    written = histories.runs(history.timed())
    found = histories.audit(written, history.stored, cuts=rng.sample(range(len(written)), 6))
    assert [one.line() for one in found.violations] == []
    assert clean(found.verdict)
    assert found.verdict["delivered"] == len(history.stored)
    assert found.verdict["redelivered"] == len(history.handed) - len(history.stored) > 0


@pytest.mark.parametrize(
    ("case", "counts"),
    [*(one for one in MATRIX if is_chosen(one[0])), *costly(one for one in MATRIX if not is_chosen(one[0]))],
    ids=str,
)
def test_every_planted_fault_is_found_anywhere(case: Case, counts: tuple[int, ...]) -> None:
    for seed in range(SEEDS_TRIED):
        try:
            audited, planted = faults.run(case, seed, counts)
        except Misfit:
            continue
        assert faults.judge(case, audited, planted) is None
        return
    pytest.fail(f"no history of {SEEDS_TRIED} has room for it")


@pytest.mark.parametrize("seed", [*range(2), *costly(range(2, 5))])
def test_verdict_does_not_depend_on_batches_and_restarts(seed: int) -> None:
    rng = random.Random(seed)
    history, missing = faults.everything(rng)
    written = faults.spoil(histories.runs(history.timed()), missing)
    whole = histories.audit(written, history.stored, restarts=False)
    cuts = rng.sample(range(len(written)), rng.randint(1, 20))
    assert histories.audit(written, history.stored, cuts=cuts).lines == whole.lines
    assert {one.kind for one in whole.violations} >= set(KINDS) - {UNAUDITED, LOST}


def test_chosen_cases_have_every_two_of_fault_place_and_context() -> None:
    chosen = [case for case in faults.cases() if is_chosen(case)]
    assert len(chosen) == len(faults.cases()) / 3
    for some in itertools.combinations(range(3), 2):
        pairs = {tuple(case[axis] for axis in some) for case in faults.cases()}
        assert {tuple(case[axis] for axis in some) for case in chosen} == pairs


@pytest.mark.parametrize("context", ["batch", "restart"])
def test_state_keeps_deliveries_before_and_after_a_loss(context: str) -> None:
    audited, planted = faults.run(Case("lost", "middle", context), 0)
    [violation] = audited.violations
    assert violation.before is not None and violation.after is not None
    place = planted.record.sequence
    assert [violation.before.sequence, violation.after.sequence] == [place - 1, place + 1]
    assert violation.before.incarnation and violation.before.member == f"member-{violation.before.incarnation}"


@pytest.mark.parametrize("fault", ["stored twice", "handed out again", "out of order"])
def test_violations_of_idle_key_do_not_depend_on_when_it_was_forgotten(fault: str) -> None:
    written, stored, cuts, _ = faults.prepare(Case(fault, "middle", "quiet"), 0)
    assert cuts
    assert histories.audit(written, stored, cuts=cuts).lines == histories.audit(written, stored).lines


def test_duplicate_audit_events_are_ignored() -> None:
    history = histories.make(random.Random(1))
    written = histories.runs(history.timed())
    doubled = [run for index, run in enumerate(written) for run in [run] * (1 + index % 2)]
    assert len(doubled) > len(written)
    once, twice = histories.audit(written, history.stored), histories.audit(doubled, history.stored)
    assert clean(twice.verdict)
    assert twice.verdict["repeated_events"] > 0
    for name in ("delivered", "redelivered", "keys"):
        assert twice.verdict[name] == once.verdict[name]


def test_reordered_runs_of_one_member_are_sorted() -> None:
    history = histories.make(random.Random(2), crashes=0, counts=(1,), keys=1, records=9)
    first, second, third = histories.runs(history.timed())
    found = histories.audit([first, third, second], history.stored)
    assert found.violations == []
    assert (found.verdict["delivered"], found.verdict["late"]) == (9, 3)


def test_events_of_frozen_member_count_as_earlier_deliveries() -> None:
    """It delivered four records and reported two; its successor started after those two."""
    history = histories.make(random.Random(3), crashes=0, counts=(1,), keys=1, records=6)
    frozen = list(history.handed[:4])
    next_owner = [Handed(one.record, 4711, 9) for one in history.handed[2:]]
    history.handed = [*frozen, *next_owner]
    timed = history.timed()
    late = [*timed[:2], *timed[4:], *timed[2:4]]
    found = histories.audit([run for one in late for run in histories.runs([one])], history.stored)
    assert found.violations == []
    assert found.verdict[LATE] == 2


def test_redelivery_up_to_the_end_is_no_violation() -> None:
    history = histories.make(random.Random(4), crashes=0, counts=(1,), keys=3, records=4)
    again = [Handed(one.record, 4711, 9) for one in history.handed]
    more = histories.make(random.Random(4), crashes=0, counts=(1,), keys=3, records=5)
    history.handed += again
    written = histories.runs(history.timed())
    assert clean(histories.audit(written, history.stored).verdict)
    assert more.stored[: len(history.stored)] != history.stored  # they were only made for their length


def test_keys_without_numbers_are_judged_by_generation_and_offset() -> None:
    history = histories.make(random.Random(5), crashes=0, counts=(2, 4), keys=6, records=2, numbered=False)
    mover = next(
        one
        for one in reversed(history.handed)
        if one.record.generation == 0 and wire.key_hash(one.key, 0) % 4 != one.record.partition
    )
    history.handed.remove(mover)
    newest = history.handed[-1]
    history.handed.append(Handed(mover.record, newest.incarnation, newest.group_generation))
    found = histories.audit(histories.runs(history.timed()), history.stored)
    assert {(one.kind, one.key) for one in found.violations} == {(BEFORE_GATE, mover.key)}
    assert found.verdict["unnumbered"] == len(history.handed)


def test_keyless_records_are_judged_by_partition() -> None:
    history = histories.make(random.Random(6), crashes=2, counts=(4,), keys=4, numbered=False)
    deliveries = [one.delivery() for one in history.timed()]
    bucket = Bucket()
    for one in deliveries:
        blank = wire.encode_events([_without_key(one)])
        assert check(bucket, histories.read([blank])) == []


def _without_key(one: wire.Delivery) -> wire.Delivery:
    fields = {name: getattr(one, name) for name in one.__slots__}
    return wire.Delivery(**{**fields, "key": None, "number": -1, "key_hash": one.partition})


def test_undelivered_duplicate_of_a_stored_record_is_reported() -> None:
    history = histories.make(random.Random(7), crashes=0, counts=(1,), keys=1, records=3)
    [*_, last] = history.stored
    twin = histories.Record(last.key, last.producer, last.sequence, last.partition, last.offset + 2, 0)
    found = histories.audit(histories.runs(history.timed()), [*history.stored, twin])
    assert [(one.kind, one.offset) for one in found.violations] == [(REPEATED, twin.offset)]


def test_without_deliveries_every_stored_record_is_lost() -> None:
    history = histories.make(random.Random(8), keys=3)
    found = histories.audit([], history.stored)
    assert found.verdict["lost"] == len(history.stored)
    assert sum(last - first + 1 for one in found.violations for first, last in one.sequences) == len(history.stored)


def test_without_generations_a_key_must_not_return_to_a_former_partition() -> None:
    """As after a resize in Kafka: old records are read again after later ones."""
    spots = [(0, 1, 10), (1, 1, 12), (2, 5, 14), (1, 1, 12), (3, 5, 16)]
    records = [histories.Record(b"k", 7, sequence, partition, offset, -1) for sequence, partition, offset in spots]
    history = histories.History([], [Handed(record, 1, 1) for record in records])
    found = histories.audit(histories.runs(history.timed()), cuts=[1])
    assert [(one.kind, one.event and one.event.sequence) for one in found.violations] == [(OUT_OF_ORDER, 1)]
