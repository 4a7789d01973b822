"""Judges a topic's logs: each record is stored once, in order, in a partition of its key, and in no older epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from anabranch.judge.placement import partitions_of
from anabranch.judge.records import Delivery, StoredRecord, Stream
from anabranch.judge.verdict import Verdict

OUT_OF_ORDER = "stored out of order"
TWICE = "stored twice"
MISPLACED = "misplaced"
LOST = "lost"
EPOCH_BACK = "leader epoch goes back"


def judge_stored(
    verdict: Verdict,
    records: Iterable[StoredRecord],
    *,
    counts: Sequence[int] = (),
    sent: Iterable[Delivery] = (),
    starts: Mapping[int, int] | None = None,
) -> dict[Stream, list[StoredRecord]]:
    """Judge the logs.

    Args:
        verdict: Gets the violations.
        records: All records, in any order.
        counts: The partition counts of the topic's generations, the initial one first; empty: places are not judged.
        sent: Acknowledged records, which must be stored.
        starts: Partition -> log start offset. A record below it, or of a removed partition, may be gone.

    Returns:
        The records of each key and producer by sequence, each once.
    """
    streams: dict[Stream, list[StoredRecord]] = defaultdict(list)
    for record in records:
        streams[record.stream].append(record)
        verdict.stored += 1
    verdict.keys = len({key for key, _ in streams if isinstance(key, bytes)})
    _judge_epochs(verdict, [one for stored in streams.values() for one in stored])
    present = {(one.partition, one.offset, one.stream, one.sequence) for stored in streams.values() for one in stored}
    for stream, stored in streams.items():
        stored.sort(key=lambda one: (one.sequence, one.partition, one.offset))
        key = stored[0].key
        once = streams[stream] = _once(verdict, key, stored)
        _judge_order(verdict, key, once)
        if counts and key is not None:
            _judge_places(verdict, key, once, counts)
    for one in sent:
        if (
            (one.partition, one.offset, one.stream, one.sequence) not in present
            and starts is not None
            and one.offset >= starts.get(one.partition, one.offset + 1)
        ):
            verdict.add(LOST, one.key, f"number {one.sequence} was acknowledged at {_place(one)} and is not there")
    return dict(streams)


def _judge_epochs(verdict: Verdict, records: Iterable[StoredRecord]) -> None:
    """Leader epochs do not decrease along a partition's log; unknown ones are not judged."""
    last: dict[int, StoredRecord] = {}
    for one in sorted(records, key=lambda record: (record.partition, record.offset)):
        before = last.get(one.partition)
        if one.leader_epoch >= 0:
            if before is not None and one.leader_epoch < before.leader_epoch:
                text = f"{_place(one)} has epoch {one.leader_epoch}, {_place(before)} has {before.leader_epoch}"
                verdict.add(EPOCH_BACK, one.key, text)
            last[one.partition] = one


def _once(verdict: Verdict, key: bytes | None, stored: Sequence[StoredRecord]) -> list[StoredRecord]:
    kept: list[StoredRecord] = []
    for one in stored:
        if kept and kept[-1].sequence == one.sequence:
            verdict.add(TWICE, key, f"number {one.sequence} at {_place(kept[-1])} and at {_place(one)}")
        else:
            kept.append(one)
    return kept


def _judge_order(verdict: Verdict, key: bytes | None, stored: Sequence[StoredRecord]) -> None:
    """Within a partition, later numbers have higher offsets."""
    last: dict[int, StoredRecord] = {}
    for one in stored:
        before = last.get(one.partition)
        if before is not None and before.offset > one.offset:
            verdict.add(
                OUT_OF_ORDER, key, f"number {one.sequence} at {_place(one)}, {before.sequence} at {_place(before)}"
            )
        else:
            last[one.partition] = one


def _judge_places(verdict: Verdict, key: bytes, stored: Sequence[StoredRecord], counts: Sequence[int]) -> None:
    """The partitions of a key's records follow its partitions of the generations, without going back."""
    places, generation = partitions_of(key, counts), 0
    for one in stored:
        reached = next((index for index in range(generation, len(places)) if places[index] == one.partition), None)
        if reached is None:
            expected = ", ".join(map(str, places[generation:]))
            verdict.add(
                MISPLACED, key, f"number {one.sequence} at {_place(one)}; its partitions from then on: {expected}"
            )
        else:
            generation = reached


def _place(one: StoredRecord | Delivery) -> str:
    return f"{one.partition}@{one.offset}"
