"""Both ends of a connection, and the server's end with foreign protocols."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol import codec
from anabranch.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from anabranch.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.apis.produce import ProduceRequest, ProduceResponse
from anabranch.protocol.connection import ClientConnection, ServerConnection
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.registry import APIS

SERVED = {api.key: (0, api.last_version) for api in APIS}
FETCH = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[])
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def ends(client_id: str | None = "me") -> tuple[ClientConnection, ServerConnection]:
    return ClientConnection(client_id), ServerConnection(SERVED)


def send(client: ClientConnection, server: ServerConnection, message: Any, version: int) -> int:
    correlation_id, chunks = client.request(message, version)
    for chunk in chunks:
        server.feed(chunk)
    return correlation_id


@pytest.mark.parametrize("client_id", ["me", "", None, "grüße"])
@pytest.mark.parametrize("version", range(5))
def test_request_and_response_survive_the_round_trip(version: int, client_id: str | None) -> None:
    client, server = ends(client_id)
    correlation_id = send(client, server, HEARTBEAT, version)
    request = server.next_request()
    assert request is not None
    assert (request.api.name, request.version, request.client_id) == ("Heartbeat", version, client_id)
    assert (request.correlation_id, request.body) == (correlation_id, HEARTBEAT)
    answer = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert client.receive(b"".join(server.answer(answer))) == [(correlation_id, answer)]
    assert client.in_flight == 0


def test_header_has_null_client_id() -> None:
    client, server = ends()
    send(client, server, ControlledShutdownRequest(broker_id=5), 0)
    request = server.next_request()
    assert request is not None and (request.client_id, request.body.broker_id) == (None, 5)
    answer = ControlledShutdownResponse(error_code=0, remaining_partitions=[])
    assert client.receive(b"".join(server.answer(answer))) == [(0, answer)]


def test_one_request_is_open_at_a_time() -> None:
    client, server = ends()
    ids = [send(client, server, HEARTBEAT, version) for version in (0, 4, 2)]
    answers = b""
    for expected in ids:
        request = server.next_request()
        assert request is not None and request.correlation_id == expected and server.open is request
        assert server.next_request() is None
        answers += b"".join(server.answer(HeartbeatResponse(error_code=expected)))
    assert server.next_request() is None and server.buffered == 0
    assert [(found, body.error_code) for found, body in client.receive(answers)] == [(id, id) for id in ids]


def test_produce_without_acks_is_not_answered() -> None:
    client, server = ends()
    send(client, server, ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9)
    after = send(client, server, HEARTBEAT, 4)
    assert client.in_flight == 1
    assert server.next_request() is not None and server.answer(None) == []
    assert server.next_request() is not None
    chunks = server.answer(HeartbeatResponse(error_code=0))
    assert client.receive(b"".join(chunks)) == [(after, HeartbeatResponse(error_code=0))]


def test_records_are_sent_as_the_same_buffer() -> None:
    client, server = ends()
    send(client, server, FETCH, 12)
    server.next_request()
    stored = memoryview(bytes(range(256)) * 40)
    data = PartitionData(partition_index=0, error_code=0, high_watermark=9, records=stored)
    chunks = server.answer(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])]))
    assert chunks[1] is stored
    [(_, response)] = [answer for chunk in chunks for answer in client.receive(chunk)]
    assert response.responses[0].partitions[0].records == stored


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_of_newer_version_gets_supported_versions(version: int) -> None:
    """KIP-511: the body is not decoded, and the response is v0."""
    server = ServerConnection({18: (0, 4), 3: (0, 12)})
    head = b"\0\x12" + version.to_bytes(2, "big") + (77).to_bytes(4, "big")
    server.feed(frame(head + b"\0\2me" + b"\0" + b"\xff what ever"))
    request = server.next_request()
    assert request is not None
    assert (request.body, request.version, request.client_id) == (None, 0, "me")
    answer = b"".join(server.answer(None))
    expected = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    assert answer == frame((77).to_bytes(4, "big") + codec.encode(expected, 0))


def test_client_with_unsupported_version_decodes_the_answer() -> None:
    client = ClientConnection("me")
    server = ServerConnection({18: (0, 2)})
    send(client, server, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    assert server.next_request() is not None
    [(_, response)] = client.receive(b"".join(server.answer(None)))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.max_version) for row in response.api_keys] == [(18, 2)]
    send(client, server, ApiVersionsRequest(), 2)
    request = server.next_request()
    assert request is not None and request.version == 2


@pytest.mark.parametrize("version", range(5))
def test_api_versions_that_is_refused_by_its_handler_is_answered_in_v0(version: int) -> None:
    client, server = ClientConnection("me"), ServerConnection({18: (0, 4)})
    send(client, server, ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
    assert server.next_request() is not None
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    answer = b"".join(server.answer(refused))
    assert answer[8:] == codec.encode(refused, 0)
    [(_, response)] = client.receive(answer)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


HOSTILE = [
    (b"", "shorter than its header"),
    (b"\0\1\0\0\0\0\0", "shorter than its header"),
    (b"\x7f\xff\0\0\0\0\0\1\0\0", "unknown API 32767 v0"),
    (b"\xff\xff\0\0\0\0\0\1\0\0", "unknown API -1 v0"),
    (b"\0\1\0\x13\0\0\0\1\0\0", "Fetch v19, served are v0 to v18"),
    (b"\0\1\xff\xff\0\0\0\1\0\0", "Fetch v-1"),
    (b"\0\x12\xff\xff\0\0\0\1\0\0", "ApiVersions v-1"),
    (b"\0\1\0\4\0\0\0\1", "Fetch v4 header"),
    (b"\0\1\0\4\0\0\0\1\0\5ab", "Fetch v4 header: length 5 with 2 bytes left"),
    (b"\0\1\0\4\0\0\0\1\0\2\xff\xfe", "Fetch v4 header: ends too early or is not UTF-8"),
    (b"\0\1\0\x0c\0\0\0\1\xff\xff", "Fetch v12 header"),
    (b"\0\1\0\x0c\0\0\0\1\xff\xff\2\5\0\5\0", "Fetch v12 header: tag 5 after tag 5"),
    (b"\0\1\0\4\0\0\0\1\xff\xff\0\0", "Fetch v4 replica_id: ends too early at byte 10"),
]


@pytest.mark.parametrize(("payload", "reason"), HOSTILE)
def test_malformed_request_is_refused(payload: bytes, reason: str) -> None:
    server = ServerConnection(SERVED)
    server.feed(frame(payload))
    with pytest.raises(DecodeError) as caught:
        server.next_request()
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert server.open is None


def test_api_that_is_not_served_is_unknown() -> None:
    server = ServerConnection({18: (0, 4)})
    server.feed(b"".join(ClientConnection("me").request(FETCH, 12)[1]))
    with pytest.raises(DecodeError, match=r"unknown API Fetch \(1\) v12"):
        server.next_request()


def test_bytes_after_the_body_are_ignored_as_in_kafka() -> None:
    server = ServerConnection(SERVED)
    raw = b"".join(ClientConnection("me").request(HEARTBEAT, 0)[1])
    server.feed(frame(raw[4:] + b"more"))
    request = server.next_request()
    assert request is not None and request.body == HEARTBEAT


def test_responses_must_come_in_order() -> None:
    client, server = ends()
    send(client, server, HEARTBEAT, 0)
    send(client, server, HEARTBEAT, 0)
    server.next_request()
    server.answer(HeartbeatResponse(error_code=0))
    server.next_request()
    with pytest.raises(DecodeError, match="answer 1 instead of 0"):
        client.receive(b"".join(server.answer(HeartbeatResponse(error_code=0))))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\0\0", "without a correlation id"),
        (b"\0\0\0\0", "Heartbeat v4 response: ends too early"),
        (b"\0\0\0\0\0\0\0", "Heartbeat v4 response throttle_time_ms: ends too early"),
        (b"\0\0\0\0\1\0\7", "Heartbeat v4 response: tag 0 of 7 bytes"),
    ],
)
def test_malformed_response_is_refused(payload: bytes, reason: str) -> None:
    client, server = ends()
    send(client, server, HEARTBEAT, 4)
    with pytest.raises(DecodeError) as caught:
        client.receive(frame(payload))
    assert reason in str(caught.value)


def test_response_without_open_request_is_refused() -> None:
    with pytest.raises(DecodeError, match="without an open request"):
        ClientConnection("me").receive(frame(bytes(8)))


def test_correlation_ids_wrap_before_they_are_negative() -> None:
    client, server = ends()
    client._next_id = 2**31 - 1
    assert [send(client, server, HEARTBEAT, 0) for _ in range(2)] == [2**31 - 1, 0]


@given(st.binary(max_size=120), st.sampled_from(sorted(SERVED)), st.integers(0, 17), st.integers(-2, 3))
def test_random_body_behind_valid_header_is_decoded_or_a_decode_error(
    noise: bytes, key: int, version: int, cut: int
) -> None:
    server = ServerConnection(SERVED)
    payload = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff\0" + noise
    server.feed(frame(payload[:cut] if cut < 0 else payload))
    try:
        request = server.next_request()
    except DecodeError as error:
        assert len(str(error)) < 400
    else:
        assert request is not None and request.api.key == key


@given(st.binary(max_size=200))
def test_random_stream_is_decoded_or_a_decode_error(noise: bytes) -> None:
    server = ServerConnection(SERVED, frame_bytes_max=1000)
    server.feed(noise)
    try:
        while server.next_request() is not None:
            server._open = None
    except DecodeError as error:
        assert str(error)


def test_transport_reads_into_buffer_of_connection() -> None:
    client, server = ends()
    _, chunks = client.request(HEARTBEAT, 4)
    for byte in b"".join(chunks):
        room = server.get_buffer(-1)
        room[0] = byte
        server.buffer_updated(1)
    assert server.next_request() is not None
    [answers] = [client_answers(client, b"".join(server.answer(HeartbeatResponse(error_code=0))))]
    assert answers == [(0, HeartbeatResponse(error_code=0))]


def client_answers(client: ClientConnection, data: bytes) -> list[tuple[int, Any]]:
    room = client.get_buffer(len(data))
    room[: len(data)] = data
    return client.buffer_updated(len(data))


def test_only_produce_requests_are_pipelined_and_responses_keep_order() -> None:
    client, server = ends()
    first = send(client, server, ProduceRequest(acks=-1, timeout_ms=1, topic_data=[]), 8)
    second = send(client, server, ProduceRequest(acks=-1, timeout_ms=2, topic_data=[]), 9)
    send(client, server, HEARTBEAT, 0)
    all_bytes = server.held_bytes
    assert server.next_request() is not None
    behind = server.next_produce()
    assert behind is not None and behind.body.timeout_ms == 2
    assert server.next_produce() is None and server.next_request() is None, "a Heartbeat is next"
    lengths_of_frames = 2 * 4
    assert server.held_bytes == all_bytes - lengths_of_frames
    answer = ProduceResponse(responses=[])
    assert client.receive(b"".join(server.answer(answer)))[0][0] == first
    assert server.open is behind and server.next_request() is None
    assert client.receive(b"".join(server.answer(answer)))[0][0] == second, "in its own version"
    request = server.next_request()
    assert request is not None and request.api.name == "Heartbeat"
    server.answer(HeartbeatResponse(error_code=0))
    assert server.held_bytes == 0


def test_incomplete_produce_request_is_not_pipelined() -> None:
    client, server = ends()
    send(client, server, ProduceRequest(acks=-1, timeout_ms=1, topic_data=[]), 8)
    assert server.next_request() is not None
    assert server.next_produce() is None
    _, chunks = client.request(ProduceRequest(acks=-1, timeout_ms=2, topic_data=[]), 8)
    whole = b"".join(map(bytes, chunks))
    for byte in whole:
        assert server.next_produce() is None
        server.feed(bytes([byte]))
    assert server.next_produce() is not None
