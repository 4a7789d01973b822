"""Written records can be read again; unreadable lines get a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import ConsumerRecord
from anabranch.inspect.record_text import LineRecord, parse_json, printable, split_line, time_text, to_json, to_text

CONTENT = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


def consumed(**fields: Any) -> ConsumerRecord:
    given_fields = {"key": b"k", "value": b"v", "headers": (), "timestamp": 1_795_477_496_783, **fields}
    return ConsumerRecord(topic="t", partition=2, offset=7, generation=0, **given_fields)


@given(CONTENT, CONTENT, st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3), st.integers(0, 2**60))
def test_record_survives_the_round_trip_as_json(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    line = to_json(consumed(key=key, value=value, headers=tuple(headers), timestamp=timestamp))
    assert "\n" not in line
    assert parse_json(line.encode()) == LineRecord(value, key, tuple(headers), None, timestamp)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("{}", LineRecord(None)),
        ('{"value": {"delay": 3, "to": "Köln"}}', LineRecord('{"delay":3,"to":"Köln"}'.encode())),
        ('{"value": [1, 2], "key": 12}', LineRecord(b"[1,2]", b"12")),
        ('{"value": {"base64": "/w=="}}', LineRecord(b"\xff")),
        ('{"value": {"base64": "/w==", "more": 1}}', LineRecord(b'{"base64":"/w==","more":1}')),
        ('{"headers": {"a": "1", "b": null}}', LineRecord(None, headers=(("a", b"1"), ("b", None)))),
        ('{"partition": 3, "timestamp": 5}', LineRecord(None, partition=3, timestamp_ms=5)),
        ('{"partition": 3, "offset": 5, "topic": "elsewhere"}', LineRecord(None)),
        (to_json(consumed(timestamp=-1)), LineRecord(b"v", b"k")),
    ],
)
def test_json_line_is_parsed_to_record(line: str, record: LineRecord) -> None:
    assert parse_json(line.encode()) == record


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("\xff", "not JSON"),
        ("[]", "a record is an object"),
        ('{"kee": 1}', "not kee"),
        ('{"value": {"base64": "?"}}', "'?' is not base64"),
        ('{"value": {"base64": 1}}', "1 is not base64"),
        ('{"headers": 1}', "headers are"),
        ('{"headers": [["a"]]}', "a header is"),
        ('{"headers": [[1, "a"]]}', "a header is"),
        ('{"partition": -1}', "partition must be a number"),
        ('{"partition": true}', "partition must be a number"),
        ('{"timestamp": "now"}', "timestamp must be a number"),
        ('{"timestamp": 9223372036854775808}', "timestamp must be a number"),
    ],
)
def test_malformed_line_is_refused_with_reason(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("?", r"\?")):
        parse_json(line.encode("latin-1"))


def test_separator_ends_the_key() -> None:
    assert split_line(b"a:b:c", b":") == LineRecord(b"b:c", b"a")
    assert split_line(b":b", b":") == LineRecord(b"b", b"")
    assert split_line(b"a:b", None) == LineRecord(b"a:b")
    with pytest.raises(ValueError, match="no separator '::' in a:b"):
        split_line(b"a:b", b"::")


def test_text_of_a_record_is_one_line() -> None:
    record = consumed(key=None, value=b"a\nb\xff\xc3\xa9", headers=(("h", b"1"),))
    assert to_text(record) == r"t-2@7  2026-11-23T23:44:56.783Z  null  a\nb\xffé  h=1"
    assert printable(b"\x1b[2J") == r"\x1b[2J", "a record cannot command a terminal"
    assert time_text(-1) == "-"
    assert time_text(2**62) == f"{2**62} ms"
    assert json.loads(to_json(record))["value"] == {"base64": "YQpi/8Op"}
