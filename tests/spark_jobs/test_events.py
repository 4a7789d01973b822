"""Audit events as columns, compared with the scalar decoder."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.protocol import audit
from anabranch.protocol.errors import DecodeError
from anabranch.spark_jobs import events
from tests.protocol.test_audit import about, deliveries, runs
from tests.spark_jobs.live import DELIVERY

FIELDS = (
    *("number", "generation", "partition", "offset", "time_ms"),
    *("producer", "sequence", "fingerprint", "key_hash"),
)
SENDER = ("group", "member", "topic", "incarnation", "group_generation")

KEY = (7, b"k")

Record = tuple[bytes, bytes | None]
old = deliveries.map(lambda one: (audit.encode_delivery(one), one.key))
new = runs.map(lambda run: (audit.encode_events(run), audit.bucket_key(3)))


@settings(deadline=None)
@given(st.lists(old | new, max_size=6))
def test_columns_equal_individually_decoded_events(records: list[Record]) -> None:
    singly = [one for value, key in records for one in audit.decode_events(value, key)]
    found = events.read([value for value, _ in records], [key for _, key in records])
    assert len(found) == len(singly)
    for name in FIELDS:
        assert getattr(found, name).tolist() == [getattr(one, name) for one in singly], name
    for index, one in enumerate(singly):
        sender = found.senders[found.sender[index]]
        assert [getattr(sender, name) for name in SENDER] == [getattr(one, name) for name in SENDER]
    assert found.keys() == [one.key for one in singly]
    assert found.key_column().to_pylist() == found.keys()
    found.key_column().validate(full=True)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"", "not an audit event"),
        (b"a flight", "not an audit event"),
        (b"\x01short", "5|6 bytes"),
        (audit.encode_events([DELIVERY]) + b"x", "do not fill"),
        (audit.encode_events([DELIVERY])[:-1], "events at 1 places do not fit"),
        (about(5, keys={3: KEY, 9: KEY}), "a key that does not exist"),
        (about(9, keys={3: KEY}), "a key that does not exist"),
        (about(3, keys={}), "a key that does not exist"),
        (about(*[3] * 9, keys={3: (7, bytes(1 << 17))}), "bytes of repeated keys"),
        (about(3, keys={3: KEY})[:-1], "are in disorder or do not fill 0 bytes"),
        (about(3, keys={3: KEY, 9: KEY}).replace(struct.pack("<I", 9), bytes(4)), "its 2 keys are in disorder"),
    ],
)
def test_malformed_event_is_refused(value: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        events.read([audit.encode_events([DELIVERY]), value], [None, None])
