"""A request is parsed from its first bytes, however few have arrived."""

from __future__ import annotations

import struct
from itertools import product
from typing import Any

import pytest

from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.connection import ClientConnection
from anabranch.protocol.errors import DecodeError
from anabranch.proxy.request_header import RequestHeader, is_plausible, read_request_header
from tests.cases import for_each


def frame_of(message: Any, version: int, client_id: str | None = "shop") -> bytes:
    return b"".join(ClientConnection(client_id).request(message, version)[1])[4:]


def produce(acks: int, transactional_id: str | None = "tx") -> ProduceRequest:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"x" * 200)])]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=data)


@for_each(product(range(12), [0, 1, -1], [None, "tx" * 100]))
def test_header_prefix_shows_whether_produce_is_answered(version: int, acks: int, transactional_id: str | None) -> None:
    frame = frame_of(produce(acks, transactional_id), version)
    known = RequestHeader(0, version, 0, "shop", acks != 0)
    found = [read_request_header(frame[:end], 0, len(frame)) for end in range(len(frame) + 1)]
    assert set(found) == {None, known}
    first = found.index(known)
    assert found[first:] == [known] * (len(frame) + 1 - first) and first < len(frame) - 200


def test_headers_without_or_with_malformed_client_id_are_read() -> None:
    assert read_request_header(struct.pack(">hhih", 7, 0, 5, 1), 0, 10) == RequestHeader(7, 0, 5, None, True)
    assert read_request_header(struct.pack(">hhih", 99, 3, 5, -1), 0, 10) == RequestHeader(99, 3, 5, None, True)
    assert read_request_header(struct.pack(">hhih", 99, 3, 5, 1) + b"\xff", 0, 11) == RequestHeader(
        99, 3, 5, "\ufffd", True
    )
    assert read_request_header(struct.pack(">hhi", 99, 3, 5), 0, 8) == RequestHeader(99, 3, 5, None, True)


@pytest.mark.parametrize(
    "frame",
    [b"1234567", struct.pack(">hhih", 3, 9, 1, 100) + b"x", struct.pack(">hhih", 0, 9, 1, 1) + b"x\0\5a"],
)
def test_malformed_header_is_an_error_once_complete(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        read_request_header(frame, 0, len(frame))


def test_sasl_tokens_are_distinguished_from_requests() -> None:
    request = frame_of(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    assert is_plausible(request, 0, len(request))
    for token in (b"\0alice\0secret", b"n,,n=alice,r=xyz", b"c=biws,r=xyz", b"\x60\x82\1\2\3\4\5\6\7", b"\1"):
        assert not is_plausible(token, 0, len(token))
