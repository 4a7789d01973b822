"""Audit events as columns, held against the decoder that takes them apart one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import audit
from protocol.errors import DecodeError
from spark_jobs import events
from tests.protocol.test_audit import deliveries, runs
from tests.spark_jobs.live import DELIVERY

FIELDS = (
    *("number", "generation", "partition", "offset", "time_ms"),
    *("producer", "sequence", "fingerprint", "key_hash"),
)
SENDER = ("group", "member", "topic", "incarnation", "group_generation")

SENT_BY = audit.Sender("group", "member", "topic", 1, 1)

Record = tuple[bytes, bytes | None]
old = deliveries.map(lambda one: (audit.encode_delivery(one), one.key))
new = runs.map(lambda run: (audit.encode_events(run), audit.bucket_key(3)))


@settings(deadline=None)
@given(st.lists(old | new, max_size=6))
def test_columns_say_what_single_events_say(records: list[Record]) -> None:
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
        (audit.encode_events([DELIVERY])[:-1], "events at 1 places need"),
        (audit.encode_run(SENT_BY, 0, [audit.Place(0, 0, 0, 1)], bytes(32), [b"abc"]), "shorter than a hash"),
    ],
)
def test_what_is_no_event_is_refused(value: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        events.read([audit.encode_events([DELIVERY]), value], [None, None])
