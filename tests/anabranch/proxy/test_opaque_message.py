"""Unknown messages pass through rules and the journal with unchanged bytes."""

from __future__ import annotations

import struct

from anabranch.broker.authorization.peer import Peer
from anabranch.faults.matching import NodeContext, RequestView
from anabranch.journal.entry import JournalEntry
from anabranch.journal.frames import add_response, frames_of
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.proxy.opaque_message import OpaqueMessage, read_answer, read_request
from anabranch.proxy.request_header import read_request_header
from tests.anabranch.proxy.test_addresses import frame_of as answer_frame
from tests.anabranch.proxy.test_request_header import frame_of


def test_known_api_is_decoded() -> None:
    frame = frame_of(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    head = read_request_header(frame, 0, len(frame))
    assert head is not None
    request = read_request(head, frame)
    assert request.body.group_id == "g" and request.api.name == "Heartbeat"
    answer = HeartbeatResponse(throttle_time_ms=5, error_code=25)
    assert read_answer(request, answer_frame(answer, 3)) == answer


def test_unknown_api_keeps_its_bytes() -> None:
    known = frame_of(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    for frame, name in (
        (struct.pack(">hhih", 75, 0, 5, 1) + b"c\0body", "DescribeTopicPartitions"),
        (struct.pack(">hhih", 3999, 0, 5, -1), "API 3999"),
        (struct.pack(">hhih", 12, 40, 5, -1) + b"newer", "Heartbeat"),
        (known[:-3], "Heartbeat"),
    ):
        head = read_request_header(frame, 0, len(frame))
        assert head is not None
        request = read_request(head, frame)
        assert request.api.name == name and isinstance(request.body, OpaqueMessage) and request.body.frame is frame
        answer = read_answer(request, b"\0\0\0\5xyz")
        kept = frames_of(request)
        assert kept is not None and kept.request_bytes == struct.pack(">i", len(frame)) + frame
        assert add_response(kept, request, answer).answered == b"\0\0\0\7\0\0\0\5xyz"
        entry = JournalEntry(1, 0.0, RequestView(request, Peer("h"), 0, NodeContext(1, lambda _: None, lambda _: [])))
        entry.end(1.0, "answered", answer)
        assert (entry.row()["api"], entry.row()["request"], entry.row()["response"]) == (name, {}, {})
