"""The audit's two Spark functions over rows, for a stream and for a batch.

    prepare    records of the audit topic and of the audited one -> one row per run of events, or per stretch of records
               of one partition, with the bucket whose keys it is about
    audit      the rows of one bucket in one batch, and its state -> rows of output, and its new state

A row of output is a violation, the *cumulative* counts of its bucket, or what this batch counted beside the checks
(`tallies`). Cumulative counts may be written twice after a restart; what a batch counted replaces what it counted then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState

from anabranch.protocol import audit as wire
from anabranch.protocol import audit_mark
from anabranch.protocol.errors import DecodeError
from anabranch.spark_jobs import columns, events
from anabranch.spark_jobs.bucket import Bucket
from anabranch.spark_jobs.checks import SEQUENCES_END, check
from anabranch.spark_jobs.pending import Stored
from anabranch.spark_jobs.scope import Scope
from anabranch.spark_jobs.tallies import Tallies
from anabranch.spark_jobs.verdict import Tally, Unread, unread_of

if TYPE_CHECKING:
    import pandas as pd  # a process that only passes the class to Spark need not import it; workers have it already

PREPARED_SCHEMA: Final = "bucket int, stored boolean, partition int, offset bigint, value binary"
OUTPUT_SCHEMA: Final = "kind string, bucket int, detail string"
STATE: Final = "bucket"
STATE_SCHEMA: Final = "packed binary"

VIOLATION: Final = "violation"
COUNT: Final = "count"
BESIDE: Final = "beside"

_PREPARED: Final = pa.schema(
    [
        ("bucket", pa.int32()),
        ("stored", pa.bool_()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
    ]
)


class AuditTopicResized(RuntimeError):
    """The order of deliveries is unknown, because the audit topic was resized; the message has the remedy."""


class Prepared(NamedTuple):
    """A row between the two functions."""

    bucket: int
    stored: bool
    partition: int
    offset: int
    value: bytes


def prepare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Prepare rows (`mapInArrow`) from: key, value, mark (the audit header), stored, partition, offset, time_ms."""
    for batch in batches:
        stored = batch["stored"].to_numpy(zero_copy_only=False)
        rows = list(_runs(batch.filter(pa.array(~stored))))
        rows += _stretches(batch.filter(pa.array(stored)))
        yield pa.RecordBatch.from_pylist([row._asdict() for row in rows], _PREPARED)


def _runs(batch: pa.RecordBatch) -> Iterator[Prepared]:
    names = ("key", "value", "partition", "offset")
    for key, value, partition, offset in zip(*(batch[name].to_pylist() for name in names), strict=True):
        if value is None:
            raise DecodeError("not an audit event, so this is not an audit topic: an empty record")
        if value[0:1] == _RUN_MARK and key is not None and len(key) == 1:
            yield Prepared(key[0], False, partition, offset, value)
        else:
            delivery = _single_event(value, key)
            bucket = wire.bucket_of(delivery.key_hash)
            yield Prepared(bucket, False, partition, offset, wire.encode_events([delivery]))


_RUN_MARK: Final = bytes((wire.RUN_VERSION,))


def _single_event(value: bytes, key: bytes | None) -> wire.Delivery:
    try:
        return wire.decode_delivery(value, key)
    except DecodeError as error:
        raise DecodeError(f"not an audit event, so this is not an audit topic: {error}") from None


def _stretches(batch: pa.RecordBatch) -> Iterator[Prepared]:
    """Yield records of the audited topic, as columns per bucket and partition: fingerprints instead of payloads."""
    if not batch.num_rows:
        return
    keys, partition = batch["key"].to_pylist(), batch["partition"].to_numpy()
    marks = [audit_mark.sound_mark(mark) for mark in batch["mark"].to_pylist()]
    pairs = np.frombuffer(b"".join(marks), ">u8").reshape(-1, 2)
    digests = b"".join(wire.digest(value or b"") for value in batch["value"].to_pylist())
    bucket = np.array(
        [wire.bucket_of(wire.key_hash(key, at)) for key, at in zip(keys, partition.tolist(), strict=True)], np.int64
    )
    found = {
        "offset": batch["offset"].to_numpy(),
        "time_ms": batch["time_ms"].to_numpy(),
        "producer": pairs[:, 0].astype(np.uint64),
        "sequence": pairs[:, 1].astype(np.uint64),
        "fingerprint": np.frombuffer(digests, "<u8")[::2],
    }
    where = bucket << 32 | partition
    order = np.argsort(where, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(where[order])) + 1):
        lengths = np.array([-1 if keys[row] is None else len(keys[row]) for row in rows], np.int32)
        arena = b"".join(keys[row] or b"" for row in rows)
        its = {name: column[rows] for name, column in found.items()}
        packed = columns.pack({**its, "lengths": lengths, "arena": np.frombuffer(arena, np.uint8)}, None)
        yield Prepared(int(bucket[rows[0]]), True, int(partition[rows[0]]), int(its["offset"][0]), packed)


def take(bucket: Bucket, number: int, frame: pd.DataFrame, scope: Scope) -> Iterator[tuple[str, int, str]]:
    """Judge the prepared rows of one batch of a bucket. Returns output rows."""
    bucket.enter(scope)
    # A key's events share one audit partition; their offsets there are the order of delivery.
    frame = frame.sort_values(["partition", "offset"], kind="stable")
    _stay_home(bucket, frame)
    stored = frame["stored"].to_numpy(dtype=np.bool_)
    handed = events.read(frame["value"][~stored].tolist(), [None] * int((~stored).sum()))
    beside = Tallies()
    kept = None
    if stored.any() and scope.expect is not None:
        kept, times = _concatenate(frame["partition"][stored].tolist(), frame["value"][stored].tolist())
        beside.store(scope.expect, kept.partition, times)
    for violation in check(bucket, handed, kept, scope.expect):
        yield VIOLATION, number, violation.line()
    names = [(one.group, one.topic) for one in handed.senders]
    where = {"name": handed.sender, "partition": handed.partition}
    beside.deliver(names, {**where, "generation": handed.generation, "time_ms": handed.time_ms})
    yield COUNT, number, json.dumps(_counts(bucket))
    yield BESIDE, number, json.dumps(beside.as_json())


def _stay_home(bucket: Bucket, frame: pd.DataFrame) -> None:
    """Raise AuditTopicResized if runs of this bucket are in another partition than the earlier ones."""
    handed = frame[~frame["stored"].to_numpy(dtype=np.bool_)]
    for partition, value in zip(handed["partition"].tolist(), handed["value"].tolist(), strict=True):
        if bucket.home == partition or wire.RUN.unpack_from(value)[_FIRST_NUMBER] == wire.NO_NUMBER:
            continue  # single events are in the partitions of their keys
        if bucket.home >= 0:
            raise AuditTopicResized(
                f"the audit topic was resized: deliveries of the same keys are in its partitions {bucket.home} and "
                f"{partition}, which are not read in order. Have consumers write to a new audit topic"
            )
        bucket.home = partition


_FIRST_NUMBER: Final = 4
"""The index of the first event's number in the head of a run."""


def finish(bucket: Bucket, number: int, expect: str | None, groups: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """Yield a bucket's violations at the end of the audit, and the counts to add to its last ones."""
    violations, tallies = bucket.finish(expect, groups)
    for violation in violations:
        yield VIOLATION, number, violation.line()
    unread = [list(one) for one in bucket.unread(expect, groups)]
    yield COUNT, number, json.dumps({"tallies": [list(tally) for tally in tallies], "unread": unread})


def finish_all(expect: str | None, groups: Sequence[str], frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Finish buckets, given as packed states (for `mapInPandas`). Columns: bucket, packed."""
    import pandas as pd

    for frame in frames:
        for number, packed in zip(frame["bucket"].tolist(), frame["packed"].tolist(), strict=True):
            found = list(finish(Bucket.unpack(bytes(packed)), number, expect, groups))
            yield pd.DataFrame(found, columns=["kind", "bucket", "detail"])


def tallies_of(found: Iterable[Mapping[str, Any]]) -> list[Tally]:
    """Sum the counts of many buckets into one row per group, topic and generation."""
    sums: dict[tuple[str, str, int], dict[str, int]] = {}
    for one in found:
        for group, topic, generation, counts in one["tallies"]:
            row = sums.setdefault((group, topic, generation), {})
            for name, count in counts.items():
                row[name] = row.get(name, 0) + count
    return [Tally(*where, counts) for where, counts in sorted(sums.items())]


def unread_in(found: Iterable[Mapping[str, Any]]) -> list[Unread]:
    """Return the places of lost records, from the final rows of all buckets."""
    return unread_of(Unread(*row) for one in found for row in one.get("unread", ()))


class BucketAuditor(StatefulProcessor):
    """Checks the deliveries of one bucket, batch by batch."""

    _state: ValueState

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keep the handle; called by Spark."""
        self._state = handle.getValueState(STATE, STATE_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Check the rows of one bucket in one batch; called by Spark."""
        import pandas as pd

        packed = self._state.get()
        bucket = Bucket.unpack(bytes(packed[0]) if packed is not None else None)
        frame = pd.concat(list(rows), ignore_index=True)
        found = list(take(bucket, int(key[0]), frame, self._scope))
        self._state.update((bucket.pack(),))
        yield pd.DataFrame(found, columns=["kind", "bucket", "detail"])

    def close(self) -> None:
        """Do nothing; called by Spark."""


def _counts(bucket: Bucket) -> dict[str, Any]:
    return {
        "keys": bucket.keys,
        "forgotten": bucket.forgotten,
        "clock_ms": bucket.clock_ms,
        "tallies": [list(tally) for tally in bucket.count()],
        "stored": len(bucket.pending.stored),
        "waiting": bucket.waiting(),
        "passed": bucket.count_passed(),
    }


def _concatenate(partitions: Sequence[int], blobs: Sequence[bytes]) -> tuple[Stored, Any]:
    """Concatenate stretches of records; return them and their times."""
    found: dict[str, list[Any]] = {}
    of_partition, keys = [], list[bytes | None]()
    for partition, blob in zip(partitions, blobs, strict=True):
        its, _ = columns.unpack(blob)
        begin, arena = 0, its.pop("arena").tobytes()
        for length in its.pop("lengths").tolist():
            keys.append(None if length < 0 else arena[begin : begin + length])
            begin += max(0, length)
        for name, column in its.items():
            found.setdefault(name, []).append(column)
        of_partition.append(np.full(len(its["offset"]), partition, np.int64))
    joined = {name: np.concatenate(parts) for name, parts in found.items()}
    numbered = (joined["producer"] != audit_mark.NO_PRODUCER) & (joined["sequence"] < SEQUENCES_END)
    stored = Stored(
        partition=np.concatenate(of_partition),
        offset=joined["offset"],
        producer=np.where(numbered, joined["producer"], np.uint64(audit_mark.NO_PRODUCER)),
        sequence=np.where(numbered, joined["sequence"].astype(np.int64), -1),
        fingerprint=joined["fingerprint"],
        keys=keys,
    )
    return stored, joined["time_ms"]
