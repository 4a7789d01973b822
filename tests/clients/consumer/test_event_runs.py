"""Deliveries as runs of events: complete, in order per bucket, and numbered without gaps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.clients.consumer import event_runs
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.consumer.event_runs import EventRuns
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.protocol import audit, audit_mark
from anabranch.protocol.audit import Delivery

GROUP = "readers"
INCARNATION = 9

marks = st.builds(audit_mark.encode, st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1))
numbered = marks.map(lambda mark: ((audit_mark.HEADER, mark),))
header_lists = st.lists(
    st.tuples(st.sampled_from(["other", audit_mark.HEADER]), st.none() | st.just(b"damaged") | marks), max_size=3
).map(tuple)


@dataclass(frozen=True)
class Handed:
    """One call: records of one partition, to one owner, at one time."""

    owner: ConsumerGroupMetadata
    records: list[ConsumerRecord]
    time_ms: int
    begin_number: int


@st.composite
def calls(draw: st.DrawFn) -> Handed:
    topic, partition = draw(st.sampled_from("tu")), draw(st.integers(0, 3))
    generations = sorted(draw(st.lists(st.integers(-1, 3), min_size=1, max_size=8)))
    records = [
        ConsumerRecord(
            topic,
            partition,
            draw(st.integers(0, 2**63 - 1)),
            0,
            draw(st.binary(max_size=6) | st.none()),
            draw(st.binary(max_size=6) | st.none()),
            draw(numbered | header_lists),
            generation,
        )
        for generation in generations
    ]
    owner = ConsumerGroupMetadata(GROUP, draw(st.integers(0, 2)), draw(st.sampled_from(["m", "n"])))
    return Handed(owner, records, draw(st.integers(0, 2)), draw(st.integers(0, 2)))


def expected(handed: Handed, record: ConsumerRecord, number: int) -> Delivery:
    """What must be told of one record, put together slowly."""
    newest = next((value for name, value in reversed(record.headers) if name == audit_mark.HEADER), None)
    sound = newest is not None and len(newest) == audit_mark.MARK_BYTES
    producer, sequence = audit_mark.decode(newest if sound and newest is not None else audit_mark.NO_MARK)
    return Delivery(
        generation=record.generation,
        partition=record.partition,
        offset=record.offset,
        producer=producer,
        sequence=sequence,
        fingerprint=audit.fingerprint(record.value),
        time_ms=handed.time_ms,
        incarnation=INCARNATION,
        group=GROUP,
        member=handed.owner.member_id,
        topic=record.topic,
        group_generation=handed.owner.generation_id,
        number=number,
        begin_number=handed.begin_number,
        key=record.key,
        key_hash=audit.key_hash(record.key, record.partition),
    )


@settings(deadline=None)
@given(
    st.lists(calls(), max_size=8),
    st.integers(1, 12),
    st.integers(1, 300),
    st.integers(0, 2000),
    st.sets(st.integers(0, 7)),
)
def test_every_delivery_is_recorded_once_and_each_bucket_in_order(
    handed: list[Handed], pass_events: int, run_bytes_max: int, known_bytes_max: int, taken_after: set[int]
) -> None:
    told: dict[bytes, list[Delivery]] = defaultdict(list)
    wanted: dict[bytes, list[Delivery]] = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_runs, "PASS_EVENTS", pass_events)
        patch.setattr(event_runs, "RUN_BYTES_MAX", run_bytes_max)
        patch.setattr(event_runs, "KNOWN_BYTES_MAX", known_bytes_max)
        events = EventRuns(GROUP, INCARNATION)
        for index, call in enumerate(handed):
            events.note(call.records, call.owner, call.time_ms, call.begin_number)
            for record in call.records:
                row = wanted[audit.bucket_key(audit.bucket_of(audit.key_hash(record.key, record.partition)))]
                row.append(expected(call, record, len(row)))
            if index in taken_after or call is handed[-1]:
                for key, value in events.take():
                    run = audit.decode_events(value)
                    longest = max(len(one.key or b"") for one in run)
                    assert len(run) == 1 or len(run) * (audit.EVENT.size + longest) <= run_bytes_max
                    told[key] += run
                assert events.waiting == 0
    assert told == wanted
    assert events.take() == []


def test_run_stores_origin_once_and_simultaneous_records_share_it() -> None:
    events = EventRuns(GROUP, INCARNATION)
    owner = ConsumerGroupMetadata(GROUP, 1, "m")
    for offset in range(5):
        events.note([ConsumerRecord("t", 0, offset, 0, b"k", b"v", (), 2)], owner, 7, 3)
    assert events.waiting == 5
    [(_, value)] = events.take()
    assert audit.read_layout(value).places == [audit.Place(2, 0, 7, 5, 3)]


def test_remembered_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_runs, "KNOWN_BYTES_MAX", 3 * event_runs.KEY_COST_BYTES)
    events = EventRuns(GROUP, INCARNATION)
    known: set[int] = set()
    for number in range(10):
        record = ConsumerRecord("t", 0, number, 0, b"%d" % number, b"v", (), 0)
        events.note([record] * 2, ConsumerGroupMetadata(GROUP, 1, "m"), 7, 3)
        [(_, value)] = events.take()
        assert [one.key for one in audit.decode_events(value)] == [record.key] * 2
        known.add(len(events._writers.keys))
    assert known == {0, 1, 2}, "what is much is forgotten as soon as nothing is open"
