"""A bucket of a batch job processes portions with the same result as all at once.

That Spark runs it is seen in test_audit and test_work.
"""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from anabranch.protocol.audit_mark import HEADER
from anabranch.spark_jobs import backfill, stages
from anabranch.spark_jobs.bucket import Bucket
from anabranch.spark_jobs.pending import Pending
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.stages import BESIDE, COUNT, VIOLATION
from tests.spark_jobs import faults, histories

COLUMNS = ("key", "value", "mark", "stored", "partition", "offset", "time_ms")
KINDS = (pa.binary(), pa.binary(), pa.binary(), pa.bool_(), pa.int32(), pa.int64(), pa.int64())


def prepared(seed: int) -> pd.DataFrame:
    """The rows of an audit topic of two partitions, and of what it is about, with every kind of violation in them."""
    history, missing = faults.everything(random.Random(seed))
    written = faults.spoil(histories.runs(history.timed()), missing)
    rows: list[tuple[Any, ...]] = [
        (bytes([key]), value, None, False, key % 2, n, 0) for n, (key, value) in enumerate(written)
    ]
    for one in history.stored:
        mark = dict(one.headers)[HEADER]
        rows.append((one.key, one.value, mark, True, one.partition, one.offset, histories.BEGIN_MS))
    random.Random(seed).shuffle(rows)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), KINDS, strict=True)], COLUMNS
    )
    return pd.concat([found.to_pandas() for found in stages.prepare([batch])])


@pytest.mark.parametrize("seed", range(2))
def test_portions_are_small_and_give_same_verdict(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scope, whole, counts = Scope(histories.TOPIC), prepared(seed), list[int]()
    for number, frame in whole.groupby("bucket"):
        told, states = [], []
        for limit in (1 << 30, 2000):
            monkeypatch.setattr(backfill, "PORTION_BYTES", limit)
            counts.append(len(list(backfill.portions(frame))))
            bucket = Bucket(pending=Pending(keep=True))
            rows = list(backfill.take_all(bucket, int(number), frame, scope))
            told.append(sorted(rows))
            states.append([one.line() for one in bucket.finish(scope.expect, [histories.GROUP])[0]])
        assert told[0] == told[1]
        assert states[0] == states[1]
        assert [kind for kind, _, _ in told[0] if kind != VIOLATION] == [BESIDE, COUNT]
    assert counts[::2] == [1] * len(counts[::2]) and max(counts) > 4


def test_portions_keep_order_of_each_log_and_take_equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        (stored, at, offset, bytes(100)) for stored, at in ((False, 1), (True, 0), (True, 1)) for offset in range(40)
    ]
    random.Random(1).shuffle(rows)
    monkeypatch.setattr(backfill, "PORTION_BYTES", 3000)
    frame = pd.DataFrame(rows, columns=["stored", "partition", "offset", "value"])
    taken = [
        list(zip(*(one[name] for name in ("stored", "partition", "offset")), strict=True))
        for one in backfill.portions(frame)
    ]
    assert [len(one) for one in taken] == [30] * 4
    for log in {row[:2] for row in rows}:
        offsets = [[row[2] for row in one if row[:2] == log] for one in taken]
        assert offsets == [list(range(begin, begin + 10)) for begin in range(0, 40, 10)]


def test_resized_audit_topic_is_refused() -> None:
    """After a merge, later runs of a bucket are in a partition with a lower number: all seemed out of order."""
    written = histories.runs(histories.make(random.Random(3)).timed())
    number = max({key for key, _ in written}, key=[key for key, _ in written].count)
    values = [value for key, value in written if key == number]
    assert len(values) > 1
    rows = [(bytes([number]), value, None, False, 1 if n == 0 else 0, n, 0) for n, value in enumerate(values)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), KINDS, strict=True)], COLUMNS
    )
    frame = pd.concat([found.to_pandas() for found in stages.prepare([batch])])
    bucket = Bucket()
    list(stages.take(bucket, number, frame[frame["partition"] == 1], Scope()))
    bucket = Bucket.unpack(bucket.pack())
    with pytest.raises(stages.AuditTopicResized, match="in its partitions 1 and 0, which are not read in order"):
        list(stages.take(bucket, number, frame[frame["partition"] == 0], Scope()))
    with pytest.raises(stages.AuditTopicResized):
        list(stages.take(Bucket(), number, frame, Scope()))
