"""Goal: a search finds the records that meet every condition, and passes over batches that cannot have one."""

from __future__ import annotations

import pytest

from anabranch.inspect.record_filter import RecordFilter
from anabranch.protocol.records.record import Record

RECORD = Record(
    offset=7,
    timestamp_ms=1000,
    key=b"customer-7",
    value=b'{"amount": 3}',
    headers=[("trace", b"ab-cd"), ("none", None)],
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (RecordFilter(), True),
        (RecordFilter(key=b"omer-7"), True),
        (RecordFilter(key=b"omer-8"), False),
        (RecordFilter(value=b'"amount"'), True),
        (RecordFilter(value=b"price"), False),
        (RecordFilter(header="trace"), True),
        (RecordFilter(header="race"), False),
        (RecordFilter(header="trace=cd"), True),
        (RecordFilter(header="trace=ef"), False),
        (RecordFilter(header="none=x"), False),
        (RecordFilter(offset=7), True),
        (RecordFilter(offset=8), False),
        (RecordFilter(from_ms=1000, to_ms=1000), True),
        (RecordFilter(from_ms=1001), False),
        (RecordFilter(to_ms=999), False),
        (RecordFilter(key=b"customer", value=b"price"), False),
    ],
)
def test_record_matches_if_all_conditions_hold(wanted: RecordFilter, found: bool) -> None:
    assert wanted.matches(RECORD) is found


def test_record_without_key_and_value_matches_no_part() -> None:
    tombstone = Record(offset=0, timestamp_ms=0, key=None, value=None, headers=[])
    assert not RecordFilter(key=b"a").matches(tombstone)
    assert not RecordFilter(value=b"a").matches(tombstone)


def test_batch_outside_of_offset_or_time_is_skipped() -> None:
    assert RecordFilter(offset=7).may_match(0, 8, 0)
    assert not RecordFilter(offset=7).may_match(0, 7, 0)
    assert not RecordFilter(offset=7).may_match(8, 9, 0)
    assert RecordFilter(from_ms=5).may_match(0, 1, 5)
    assert not RecordFilter(from_ms=5).may_match(0, 1, 4)
