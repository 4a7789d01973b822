"""Recorded frames of real clients (see `capture`) have the recorded meaning in both codecs."""

from __future__ import annotations

from collections import defaultdict

from anabranch.protocol import codec, layout
from anabranch.protocol.connection import ServerConnection, decode_request, decode_response, encode_response
from tests.cases import for_each
from tests.protocol.exchanges import EVERYTHING, Exchange, load, plain, response_head

EXCHANGES = load()


@for_each(EXCHANGES)
def test_request_is_decoded_as_recorded(_client: str, one: Exchange) -> None:
    raw = bytes.fromhex(one.request)
    server = ServerConnection(EVERYTHING)
    server.feed(len(raw).to_bytes(4, "big") + raw)
    request = server.next_request()
    assert request is not None
    head = (request.api.name, request.version, request.correlation_id, request.client_id)
    assert head == (one.api, one.version, one.correlation_id, one.client_id)
    assert plain(request.body, one.version) == one.asked
    body = codec.encode(request.body, one.version)
    assert raw.endswith(body)
    by_layout, end = layout.decode(request.api.request, one.version, raw, len(raw) - len(body))
    assert (plain(by_layout, one.version), end) == (one.asked, len(raw))
    assert layout.encode(by_layout, one.version) == body


@for_each(EXCHANGES)
def test_response_is_decoded_as_recorded_and_encoded_again(_client: str, one: Exchange) -> None:
    raw = bytes.fromhex(one.response)
    request = decode_request(bytes.fromhex(one.request), EVERYTHING)
    answer = decode_response(raw, request.api, one.version)
    assert plain(answer, one.version) == one.answered
    assert b"".join(encode_response(request, answer)) == len(raw).to_bytes(4, "big") + raw
    head = response_head(request.api, one.version, one.correlation_id)
    by_layout, end = layout.decode(request.api.response, one.version, raw, len(head))
    assert (plain(by_layout, one.version), end) == (one.answered, len(raw))
    assert head + layout.encode(by_layout, one.version) == raw


def test_recorded_frames_cover_enough_clients_and_apis() -> None:
    apis = defaultdict(set)
    for client, one in EXCHANGES:
        apis[client].add(one.api)
    assert {"confluent-kafka", "aiokafka", "kafka-python", "kafkajs", "kafka"} <= set(apis)
    assert min(map(len, apis.values())) >= 10
    assert len(set().union(*apis.values())) >= 30
    assert len({(one.api, one.version) for _, one in EXCHANGES}) >= 90
