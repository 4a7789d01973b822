"""Records that cannot be decoded or processed."""

from __future__ import annotations

import pytest

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.failures import DEAD_LETTER, KEY_LENGTH_MAX, SKIP, Failures, RecordFailed, place_of
from anabranch.clients.streams.serdes import Undecodable

RECORD = ConsumerRecord("in", 2, 7, 0, b"k", b"v", (), -1)


def undecodable() -> Undecodable:
    error = Undecodable("in")
    error.__cause__ = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    return error


def test_by_default_failed_record_ends_instance_and_names_handler() -> None:
    failures = Failures()
    with pytest.raises(RecordFailed, match=r"in-2 at offset 7, key b'k', cannot be processed: ValueError: no") as ended:
        failures.handle(RECORD, ValueError("no"))
    assert "processing_handler=skip or dead-letter" in str(ended.value)
    assert isinstance(ended.value.__cause__, ValueError)
    with pytest.raises(RecordFailed, match=r"cannot be decoded: UnicodeDecodeError.*deserialization_handler=skip"):
        failures.handle(RECORD, undecodable())
    assert failures.dropped == 0 and not failures.undoing


def test_each_kind_of_failure_has_its_own_handler() -> None:
    failures = Failures(deserialization_handler=SKIP)
    assert failures.handle(RECORD, undecodable()) is None
    with pytest.raises(RecordFailed):
        failures.handle(RECORD, ValueError("no"))
    assert failures.dropped == 1 and not failures.undoing
    assert Failures(processing_handler=SKIP).undoing


def test_dead_letter_headers_have_origin_and_exception(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures(processing_handler=DEAD_LETTER, dead_letter_topic="dead")
    headers = dict(failures.handle(RECORD, ValueError("two\nlines")) or ())
    assert headers["__streams.errors.exception"] == b"ValueError: two lines"
    assert headers["__streams.errors.message"] == b"two\nlines"
    assert (headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == (b"in", b"7")
    assert "it is in dead" in caplog.text


def test_long_key_is_shortened_in_messages() -> None:
    text = place_of(RECORD._replace(key=b"x" * 10_000))
    assert len(text) < KEY_LENGTH_MAX + 50 and "..." in text
