"""The offsets of one group: the journal determines them, in any order of completions."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.coordinators.groups.group_shards import Replay
from anabranch.broker.coordinators.offsets.committed_offsets import (
    CommittedOffset,
    Offsets,
    TopicPartition,
    records_of,
    tombstones_of,
)
from anabranch.broker.coordinators.runtime.journal import entries_of
from anabranch.protocol.internal_topics import decode_offset
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import build_end_transaction
from tests.protocol.stored_batch import stored_at

P0: TopicPartition = ("t", 0)
P1: TopicPartition = ("t", 1)

partitions = st.sampled_from([P0, P1, ("u", 0)])
producers = st.integers(1, 2)
operations = st.one_of(
    st.tuples(st.just("commit"), st.lists(partitions, min_size=1, max_size=3, unique=True), st.integers(0, 99)),
    st.tuples(st.just("delete"), st.lists(partitions, min_size=1, max_size=2, unique=True), st.just(0)),
    st.tuples(st.just("stage"), producers, partitions),
    st.tuples(st.just("settle"), producers, st.booleans()),
)


def value(offset: int, journal_offset: int = -1, **more: Any) -> CommittedOffset:
    return CommittedOffset(offset=offset, commit_timestamp_ms=offset, journal_offset=journal_offset, **more)


def record_of(partition: TopicPartition, committed: CommittedOffset | None) -> tuple[bytes, bytes | None]:
    (record,) = tombstones_of("g", [partition]) if committed is None else records_of("g", {partition: committed})
    return record


@given(st.lists(operations, max_size=30), st.integers())
def test_replay_equals_the_live_map(script: list[Any], seed: int) -> None:
    """Any script, with plain writes that complete in any order."""
    journal, live, completions = b"", Offsets(), []
    next_offset = 0
    for kind, first, second in script:
        builder = BatchBuilder()
        if kind == "settle":
            journal += stored_at(
                build_end_transaction(
                    commit=second, producer_id=first, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
                ),
                next_offset,
            )
            live.settle(first, commit=second)
            next_offset += 1
        elif kind == "stage":
            staged = value(next_offset, next_offset)
            builder.append(*record_of(second, staged), timestamp_ms=0)
            journal += builder.build(first, 0, 0, transactional=True, base_offset=next_offset)
            live.stage(first, second, staged)
            next_offset += 1
        else:
            base_offset = next_offset
            for partition in first:
                written = None if kind == "delete" else value(second, next_offset)
                builder.append(*record_of(partition, written), timestamp_ms=0)
                completions.append((partition, written, next_offset))
                live.begin([] if written is None else [partition])
                next_offset += 1
            journal += builder.build(base_offset=base_offset)
    random.Random(seed).shuffle(completions)
    for partition, written, place in completions:
        if written is None:
            live.delete(partition, place)
        else:
            live.end([partition])
            live.commit(partition, written)
    replay = Replay()
    for entry in entries_of(journal):
        replay.apply(entry)
    replayed = replay.offsets.get("g", Offsets())
    assert replayed.committed == live.committed
    assert {one: row for one, row in replayed.staged.items() if row} == live.staged


def test_older_journal_offset_does_not_override_a_newer_commit() -> None:
    offsets = Offsets()
    assert offsets.commit(P0, value(20, 2))
    assert not offsets.commit(P0, value(10, 1))
    assert offsets.offset_of(P0) == 20
    offsets.delete(P0, 1)
    assert offsets.offset_of(P0) == 20
    offsets.begin([P0])
    offsets.delete(P0, 4)
    offsets.end([P0])
    assert not offsets.commit(P0, value(30, 3)) and offsets.offset_of(P0) == -1
    assert offsets.commit(P0, value(40, 5))


def test_nothing_is_kept_of_deleted_offsets() -> None:
    """A group may read topics that live for a day, for years."""
    offsets = Offsets()
    for place in range(0, 20, 2):
        topic = (f"of-{place}", 0)
        offsets.begin([topic])
        offsets.end([topic])
        offsets.commit(topic, value(1, place))
        offsets.delete(topic, place + 1)
    assert offsets == Offsets()


def test_ended_transaction_applies_or_drops_its_offsets() -> None:
    offsets = Offsets()
    offsets.commit(P0, value(1, 0))
    offsets.stage(7, P0, value(2, 1))
    offsets.stage(8, P1, value(3, 2))
    assert offsets.unstable(P0) and offsets.offset_of(P0) == 1
    assert offsets.settle(7, commit=True) == [P0] and offsets.offset_of(P0) == 2
    assert offsets.settle(8, commit=False) == [] and not offsets.unstable(P1) and offsets.offset_of(P1) == -1


def test_expired_offsets_are_found() -> None:
    offsets = Offsets()
    offsets.commit(P0, value(100))
    offsets.commit(P1, value(1, expire_timestamp_ms=5000))
    assert offsets.expired_offsets(1099, 1000, since_ms=None) == []
    assert offsets.expired_offsets(1100, 1000, since_ms=None) == [P0], "counted from its commit"
    assert offsets.expired_offsets(1100, 1000, since_ms=500) == [], "counted from when the last member left"
    assert offsets.expired_offsets(1100, 1000, since_ms=None, subscribed=frozenset({P0[0]})) == []
    assert offsets.expired_offsets(4999, 10_000, since_ms=0) == []
    assert offsets.expired_offsets(5000, 10_000, since_ms=0) == [P1], "an explicit expiry is kept"
    offsets.begin([P0])
    assert offsets.expired_offsets(1100, 1000, since_ms=None) == [], "another commit is on its way"
    offsets.end([P0])
    offsets.stage(1, P0, value(9))
    assert offsets.expired_offsets(1100, 1000, since_ms=None) == [], "an open transaction holds it"


def test_committed_offset_is_restored_from_its_journal_value() -> None:
    """Also from a record with an expiry, whose version has no leader epoch."""
    current = CommittedOffset(offset=5, leader_epoch=2, metadata="m", commit_timestamp_ms=9, journal_offset=77)
    expiring = CommittedOffset(offset=6, metadata="n", commit_timestamp_ms=9, expire_timestamp_ms=11, journal_offset=78)
    values = {P0: current, P1: expiring}
    restored = [
        CommittedOffset.from_value(decode_offset(content), place)
        for place, (_, content) in enumerate(records_of("g", values), 77)
    ]
    assert restored == list(values.values())


def test_tombstone_removes_pending_offsets_written_before_it() -> None:
    offsets = Offsets()
    offsets.stage(1, P0, value(10, 1))
    offsets.stage(1, P1, value(11, 2))
    offsets.stage(2, P0, value(20, 5))
    assert sorted(offsets.partitions()) == [P0, P1]
    offsets.delete(P0, 4)
    assert (offsets.unstable(P0), offsets.unstable(P1)) == (True, True), "one was staged after it"
    offsets.delete(P0, 6)
    offsets.delete(P1, 7)
    assert not offsets, "nothing is left to settle"
    assert offsets.settle(1, commit=True) == offsets.settle(2, commit=True) == []


def test_offset_is_unstable_until_its_last_commit_in_flight_ends() -> None:
    offsets = Offsets()
    offsets.begin([P0, P1])
    offsets.begin([P0])
    offsets.end([P0, P1])
    assert (offsets.unstable(P0), offsets.unstable(P1)) == (True, False)
    offsets.end([P0])
    assert not offsets.unstable(P0)
