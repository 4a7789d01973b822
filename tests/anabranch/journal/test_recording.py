"""Recordings are read back unchanged; invalid ones are refused."""

from __future__ import annotations

import json

import pytest

from anabranch.broker.authorization.peer import Peer
from anabranch.faults.matching import RequestView
from anabranch.faults.rewriting import empty_answer
from anabranch.journal.capture import capture
from anabranch.journal.entry import JournalEntry
from anabranch.journal.frames import add_response, frames_of
from anabranch.journal.recording import InvalidRecording, read_recording
from tests.anabranch.faults.samples import SURROUNDINGS, by_name


def entries() -> list[JournalEntry]:
    """Two connections whose exchanges overlap; a Produce without an answer, and one that takes several packets."""
    made = []
    for number, (port, api, took_s) in enumerate(
        [(1, "Produce", None), (1, "Fetch", 0.3), (2, "Produce", 0.1)], start=1
    ):
        request = by_name(api, 9)
        request.correlation_id = 70 + number
        if api == "Produce" and port == 2:
            request.body.topic_data[0].partition_data[0].records = b"x" * 150_000
        entry = JournalEntry(number, 10.0 + number / 10, RequestView(request, Peer("10.1.1.1", port), 0, SURROUNDINGS))
        kept = frames_of(request)
        assert kept is not None
        entry.frames = kept
        if took_s is not None:
            answer = empty_answer(request.api)
            entry.frames = add_response(kept, request, answer)
            entry.end(entry.at_s + took_s, "answered", answer)
        made.append(entry)
    return made


def test_capture_and_json_lines_have_equal_exchanges() -> None:
    kept = entries()
    from_capture = read_recording(capture(kept, 1000.0))
    lines = "\n".join(json.dumps(one.row(with_bytes=True)) for one in kept)
    from_lines = read_recording(lines.encode())
    for found, day_s in ((from_capture, 1000.0), (from_lines, 0.0)):
        assert [one.node_id for one in found] == [1, 1, 1]
        for one, entry in zip(found, kept, strict=True):
            assert entry.frames is not None
            assert one.request == entry.frames.request_bytes[4:] and one.answer == entry.frames.answered[4:]
            assert one.at_s == pytest.approx(entry.at_s + day_s, abs=1e-5)
            if entry.took_s is None:
                assert one.answered_s is None
            else:
                assert one.answered_s == pytest.approx(entry.at_s + entry.took_s + day_s, abs=1e-5)
        assert found[0].connection == found[1].connection != found[2].connection


def test_responses_of_a_connection_are_captured_in_the_order_of_its_requests() -> None:
    """A Metadata that ends before the Produce ahead of it is sent after it. All later ones had no response."""
    made = []
    for number, took_s in enumerate((0.5, 0.1, 0.1), start=1):
        request = by_name("Fetch", 9)
        request.correlation_id = 70 + number
        entry = JournalEntry(number, 10.0 + number / 10, RequestView(request, Peer("10.1.1.1", 1), 0, SURROUNDINGS))
        kept = frames_of(request)
        assert kept is not None
        answer = empty_answer(request.api)
        entry.frames = add_response(kept, request, answer)
        entry.end(entry.at_s + took_s, "answered", answer)
        made.append(entry)
    found = read_recording(capture(reversed(made), 0.0))
    assert [one.answer[:4] for one in found] == [(70 + number).to_bytes(4, "big") for number in (1, 2, 3)]
    assert [one.answered_s for one in found] == pytest.approx([10.6] * 3)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file has no exchanges with bytes; write one with"),
        (b'{"number": 1, "bytes": null}\n', "the file has no exchanges with bytes; write one with"),
        (b'{"number": 1, "bytes": {"request": "", "response": ""}}\n', "line 1 is not an exchange"),
        (b"nonsense\n", "line 1 is not an exchange"),
        (b"[]\n", "line 1 is not an exchange"),
        (b"\xff\xfe\n", "line 1 is not an exchange"),
        (capture([], 0.0), "the file has no exchanges with bytes; write one with"),
        (capture([], 0.0)[:-3], "is truncated"),
    ],
)
def test_recording_without_exchanges_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(InvalidRecording, match=says):
        read_recording(content)


def test_capture_of_another_protocol_is_refused() -> None:
    whole = capture(entries(), 0.0)
    ethernet = whole.replace(
        b"\x01\x00\x00\x00\x14\x00\x00\x00\x65\x00", b"\x01\x00\x00\x00\x14\x00\x00\x00\x01\x00", 1
    )
    with pytest.raises(
        InvalidRecording, match="the capture has frames that are not IP; captures of the journal have only IP"
    ):
        read_recording(ethernet)
