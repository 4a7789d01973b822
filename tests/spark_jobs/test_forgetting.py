"""Idle keys are forgotten: the state is bounded, in any batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from anabranch.spark_jobs.bucket import LOSS_TIMEOUT_MS, QUIET_MS, Bucket
from anabranch.spark_jobs.checks import check
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.verdict import LOST, clean
from tests.cases import costly
from tests.spark_jobs import faults, histories
from tests.spark_jobs.histories import Handed, History, Record

FORGET_MS = 2 * QUIET_MS
OTHER = next(
    b"other-%d" % number
    for number in range(1000)
    if histories.bucket_of_key(b"other-%d" % number) == histories.bucket_of_key(b"k")
)


def handed(key: bytes, sequence: int, *, producer: int = 7, pause_ms: int = 0) -> Handed:
    return Handed(Record(key, producer, sequence, 0, sequence, 0), 1, 1, pause_ms=pause_ms)


def audit(deliveries: Sequence[Handed], cuts: Sequence[int] = ()) -> histories.Audited:
    written = histories.runs(History(handed=list(deliveries)).timed())
    return histories.audit(written, cuts=cuts, forget_ms=FORGET_MS)


@pytest.mark.parametrize("sequences", [(0, 1), (0, 2)], ids=["whole", "each with a gap"])
def test_repeatedly_restarted_producers_leave_bounded_state(sequences: tuple[int, int]) -> None:
    """Old producers' states are removed as new ones come."""
    bucket, sizes = Bucket(), []
    starts = [
        handed(b"k%d" % number, sequence, producer=start, pause_ms=QUIET_MS if number == sequence == 0 else 0)
        for start in range(1, 13)
        for sequence in sequences
        for number in range(100)
    ]
    timed = [replace(one, number=number) for number, one in enumerate(History(handed=starts).timed())]
    for begin in range(0, len(timed), 200):
        bucket.enter(Scope(forget_ms=FORGET_MS))
        check(bucket, histories.read([value for _, value in histories.runs(timed[begin : begin + 200])]))
        bucket = Bucket.unpack(bucket.pack())
        sizes.append((len(bucket.lines) + len(bucket.lines.quiet_first), len(bucket.pack())))
    lines, packed = zip(*sizes, strict=True)
    assert max(lines) == lines[1] == 200
    assert max(packed[6:]) < 1.1 * packed[5]
    assert bucket.forgotten == 12 * 100 - lines[-1]
    assert sum(tally.counts[LOST] for tally in bucket.count()) == 12 * 100 * (sequences[1] - 1)


def test_key_that_returns_after_it_was_forgotten_starts_there() -> None:
    first = [handed(b"k", 0), handed(b"k", 1)]
    back = audit([*first, handed(b"k", 2, pause_ms=FORGET_MS + 1), handed(b"k", 3)])
    assert clean(back.verdict)
    assert (back.verdict["forgotten"], back.verdict["keys"], back.verdict["delivered"]) == (1, 2, 4)
    known = audit([*first, handed(b"k", 3, pause_ms=FORGET_MS - histories.STEP_MS)])
    assert (known.verdict["forgotten"], known.verdict["lost"]) == (0, 1)
    skipped = audit([*first, handed(b"k", 2, pause_ms=FORGET_MS + 1), handed(b"k", 4)])
    assert skipped.verdict["lost"] == 1, "what comes after is judged as ever"


def test_key_is_expected_from_its_first_record_within_forget_time() -> None:
    assert audit([handed(b"k", 0), handed(OTHER, 2, pause_ms=FORGET_MS - histories.STEP_MS)]).verdict["lost"] == 2
    assert audit([handed(b"k", 0), handed(OTHER, 2, pause_ms=FORGET_MS + 1)]).verdict["lost"] == 0


def test_losses_are_counted_when_their_key_is_forgotten() -> None:
    deliveries = [handed(b"k", 0), handed(b"k", 3), handed(b"k", 4, pause_ms=FORGET_MS + 1), handed(b"k", 5)]
    found = audit(deliveries)
    assert [(one.kind, one.sequences) for one in found.violations] == [(LOST, ((1, 2),))]
    assert (found.verdict["lost"], found.verdict["forgotten"]) == (2, 1)
    tick = handed(OTHER, 0, pause_ms=LOSS_TIMEOUT_MS)
    assert audit(deliveries, cuts=[1]).lines == audit(deliveries, cuts=[1, 2]).lines == found.lines
    assert audit([*deliveries[:2], tick, *deliveries[2:]]).verdict["lost"] == 2


@pytest.mark.parametrize("expected", [True, False], ids=["with what is stored", "deliveries alone"])
@pytest.mark.parametrize("seed", [0, 1, *costly([2, 3])])
def test_verdict_with_forgotten_keys_does_not_depend_on_batches_and_restarts(seed: int, expected: bool) -> None:
    rng = random.Random(seed)
    history, missing = faults.everything(rng)
    for one in rng.sample(history.handed, 12):
        one.pause_ms = rng.choice([LOSS_TIMEOUT_MS, QUIET_MS, FORGET_MS // 2, FORGET_MS, FORGET_MS + 1, 2 * FORGET_MS])
    written = faults.spoil(histories.runs(history.timed()), missing)
    stored = history.stored if expected else None
    whole = histories.audit(written, stored, restarts=False, forget_ms=FORGET_MS)
    assert whole.verdict["forgotten"] > 0
    assert len({one.kind for one in whole.violations}) > 3
    for portions in (3, 20):
        cuts = rng.sample(range(len(written)), portions)
        found = histories.audit(written, stored, cuts=cuts, forget_ms=FORGET_MS)
        assert found.lines == whole.lines
        assert found.verdict == whole.verdict


def test_records_stored_before_a_forgotten_key_restarted_are_lost_and_not_repeated() -> None:
    deliveries = [handed(OTHER, 0), handed(b"k", 3, pause_ms=FORGET_MS + 1)]
    stored = [handed(b"k", number).record for number in range(5)] + [deliveries[0].record]
    stored = [replace(one, offset=at) for at, one in enumerate(stored)]
    deliveries = [replace(one, record=stored[at]) for one, at in zip(deliveries, (5, 3), strict=True)]
    written = histories.runs(History(handed=deliveries).timed())
    found = histories.audit(written, stored, forget_ms=FORGET_MS)
    assert (found.verdict["lost"], found.verdict["repeated"]) == (4, 0)


def test_missing_record_of_audited_topic_is_reported_once() -> None:
    stored = [replace(handed(b"k", number).record, offset=number) for number in range(4)]
    deliveries = [handed(b"k", 0), handed(b"k", 2), handed(b"k", 3, pause_ms=FORGET_MS + 1)]
    written = histories.runs(History(handed=deliveries).timed())
    whole = histories.audit(written, stored, forget_ms=FORGET_MS)
    assert (whole.verdict["lost"], whole.verdict["forgotten"], len(whole.violations)) == (1, 0, 1)
    assert histories.audit(written, stored, forget_ms=FORGET_MS, cuts=[1, 2]).lines == whole.lines


@pytest.mark.parametrize("ahead_ms", [400 * FORGET_MS, -400 * FORGET_MS], ids=["ahead", "behind"])
def test_member_with_wrong_clock_does_not_cause_repeated_forgetting(ahead_ms: int) -> None:
    """Its first event moves the time ahead and causes forgetting once; later verdicts are normal."""
    off = replace(handed(OTHER, 0), incarnation=2, early_ms=-ahead_ms)
    deliveries = [off, *(handed(b"k", number) for number in (0, 1, 3, 2)), off]
    deliveries[-1] = replace(off, record=handed(OTHER, 1).record)
    for cuts in (range(0), range(1, 6)):
        found = audit(deliveries, cuts=cuts)
        assert (found.verdict["out_of_order"], found.verdict["lost"]) == (1, 0)
        assert found.verdict["forgotten"] <= 1
