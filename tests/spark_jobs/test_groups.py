"""Two groups on one topic: records wait for both groups, or the audit reports that they do not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from anabranch.spark_jobs.bucket import Bucket
from anabranch.spark_jobs.checks import check
from anabranch.spark_jobs.pending import LateGroup
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.verdict import LOST, WRONG_PAYLOAD, clean
from tests.spark_jobs import histories
from tests.spark_jobs.histories import ANOTHER, GROUP, Handed, History, Record, bucket_of

BOTH = (GROUP, ANOTHER)


def late_and_wrong(seed: int) -> History:
    """The second group begins when the first has everything; it gets one record garbled, and the last ones never."""
    history = histories.make(random.Random(seed), crashes=1)
    history = histories.read_by_another(history, behind=len(history.handed))
    mine = [index for index, one in enumerate(history.handed) if one.group == ANOTHER]
    garbled = replace(history.handed[mine[0]], fingerprint=4711)
    return replace(history, handed=[*history.handed[: mine[0]], garbled, *history.handed[mine[1] : mine[-5]]])


@pytest.mark.parametrize("seed", range(4))
def test_late_group_is_judged_equally_in_batches_and_at_once(seed: int) -> None:
    history = late_and_wrong(seed)
    written = histories.runs(history.timed())
    at_once = histories.audit(written, history.stored, at_once=True)
    assert {(one.kind, one.group) for one in at_once.violations} == {(WRONG_PAYLOAD, ANOTHER), (LOST, ANOTHER)}
    cuts = random.Random(seed).sample(range(len(written)), 9)
    assert histories.audit(written, history.stored, cuts=cuts, groups=BOTH).lines == at_once.lines
    assert histories.audit(written, history.stored, groups=BOTH, at_once=True).lines == at_once.lines


@pytest.mark.parametrize("behind", [0, 1, 30, 500])
def test_two_groups_that_get_every_record_are_clean(behind: int) -> None:
    history = histories.read_by_another(histories.make(random.Random(behind)), behind=behind)
    written = histories.runs(history.timed())
    cuts = random.Random(behind).sample(range(len(written)), 9)
    found = histories.audit(written, history.stored, cuts=cuts, groups=BOTH)
    assert clean(found.verdict)
    assert found.verdict["delivered"] == 2 * len(history.stored)


def test_unnamed_group_that_starts_too_late_ends_the_audit() -> None:
    history = late_and_wrong(0)
    written = histories.runs(history.timed())
    with pytest.raises(LateGroup, match=rf"group {ANOTHER} .*--group {ANOTHER} --group {GROUP}.*--backfill"):
        histories.audit(written, history.stored, cuts=range(0, len(written), 9))


def test_group_absent_from_one_bucket_has_losses_there() -> None:
    history = late_and_wrong(1)
    only = bucket_of(next(one for one in history.handed if one.group == ANOTHER))
    history = replace(history, handed=[one for one in history.handed if one.group == GROUP or bucket_of(one) == only])
    written = histories.runs(history.timed())
    with pytest.raises(LateGroup):
        histories.audit(written, history.stored)
    at_once = histories.audit(written, history.stored, at_once=True)
    assert histories.audit(written, history.stored, groups=BOTH).lines == at_once.lines
    its_keys = {one.key for one in history.handed if one.group == ANOTHER}
    assert {one.key for one in at_once.violations if one.kind == LOST} - its_keys, "in other buckets"


def test_records_wait_for_named_groups_only() -> None:
    history = late_and_wrong(2)
    written = histories.runs(history.timed())
    found = histories.audit(written, history.stored, cuts=range(0, len(written), 9), groups=[GROUP])
    assert clean(found.verdict), "the other one is judged by its order alone"
    nobody = histories.audit(written, history.stored, groups=["nobody"])
    assert nobody.verdict["lost"] == len(history.stored)


def test_too_many_groups_are_refused() -> None:
    with pytest.raises(OverflowError, match="--group"):
        Bucket().enter(Scope("t", tuple(map(str, range(64)))))


def test_records_skipped_by_a_running_group_are_counted() -> None:
    """Without numbers, a missing record shows only at the end."""
    stored = [Record(b"k", 0, 0, 0, offset, 0) for offset in range(6)]
    handed = [Handed(one, 1, 1) for one in stored if one.offset != 2][:4]
    timed = History(handed=handed).timed()
    bucket, seen = Bucket(), []
    bucket.enter(Scope(histories.TOPIC, BOTH))
    check(bucket, histories.read([]), histories.as_stored(stored), histories.TOPIC)
    for one in timed:
        check(bucket, histories.read([value for _, value in histories.runs([one])]), None, histories.TOPIC)
        bucket = Bucket.unpack(bucket.pack())
        seen.append((bucket.count_passed(), bucket.waiting()))
    assert seen == [(missed, {GROUP: left, ANOTHER: 6}) for missed, left in ((0, 5), (0, 4), (1, 3), (1, 2))]
