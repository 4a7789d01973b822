"""Captured frames of real clients (librdkafka 2.16.1, aiokafka, kafka-python)."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.protocol import codec, layout
from anabranch.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from anabranch.protocol.connection import ClientConnection, ServerConnection
from anabranch.protocol.registry import APIS, BY_NAME

EVERYTHING = {api.key: (0, api.last_version) for api in APIS}

RDKAFKA_BATCH = bytes.fromhex(
    "0000000000000000000000440000000002a13795c20000000000000000013bf36858000000013bf36858000000000000000007"
    "00000000000000000001240000000c4e31343232380c55413135343500"
)
AIOKAFKA_BATCH = bytes.fromhex(
    "000000000000000000000044ffffffff02a9de0c030000000000000000013bf36858000000013bf3685800ffffffffffffffffffff"
    "0000000000000001240000000c4e31343232380c55413135343500"
)
ANY_TOPIC_ID = bytes(16)


def a_produce(records: bytes, timeout_ms: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="flights", partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])


CAPTURED = [
    (
        "0012000300000001000772646b61666b610017636f6e666c75656e742d6b61666b612d707974686f6e"
        "16322e31362e312d72646b61666b612d322e31362e3000",
        ("ApiVersions", 3, 1, "rdkafka"),
        ApiVersionsRequest(
            client_software_name="confluent-kafka-python", client_software_version="2.16.1-rdkafka-2.16.0"
        ),
    ),
    (
        "0003000c00000002000772646b61666b6100020000000000000000000000000000000008666c696768747300010000",
        ("Metadata", 12, 2, "rdkafka"),
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=ANY_TOPIC_ID, name="flights")]),
    ),
    (
        "0016000400000002000772646b61666b610000ffffffffffffffffffffffffffff00",
        ("InitProducerId", 4, 2, "rdkafka"),
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1, producer_id=-1, producer_epoch=-1),
    ),
    (
        "0000000a00000003000772646b61666b610000ffff000075300208666c6967687473020000000051"
        + RDKAFKA_BATCH.hex()
        + "000000",
        ("Produce", 10, 3, "rdkafka"),
        a_produce(RDKAFKA_BATCH, 30000),
    ),
    ("0012000000000001000861696f6b61666b61", ("ApiVersions", 0, 1, "aiokafka"), ApiVersionsRequest()),
    (
        "0003000500000002000861696f6b61666b610000000001",
        ("Metadata", 5, 2, "aiokafka"),
        MetadataRequest(topics=[], allow_auto_topic_creation=True),
    ),
    (
        "0000000700000003000861696f6b61666b61ffffffff00009c40000000010007666c6967687473000000010000000000000050"
        + AIOKAFKA_BATCH.hex(),
        ("Produce", 7, 3, "aiokafka"),
        a_produce(AIOKAFKA_BATCH, 40000),
    ),
    (
        "0003000c00000003000c6b61666b612d707974686f6e0001010000",
        ("Metadata", 12, 3, "kafka-python"),
        MetadataRequest(topics=[], allow_auto_topic_creation=True),
    ),
    (
        "0016000400000002000c6b61666b612d707974686f6e000000000000ffffffffffffffffffff00",
        ("InitProducerId", 4, 2, "kafka-python"),
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1),
    ),
]


@pytest.mark.parametrize(("frame", "head", "body"), CAPTURED, ids=[f"{head[3]}-{head[0]}" for _, head, _ in CAPTURED])
def test_requests_of_real_clients_are_decoded(frame: str, head: tuple[str, int, int, str], body: Any) -> None:
    raw = bytes.fromhex(frame)
    server = ServerConnection(EVERYTHING)
    server.feed(len(raw).to_bytes(4, "big") + raw)
    request = server.next_request()
    assert request is not None
    assert (request.api.name, request.version, request.correlation_id, request.client_id) == head
    assert request.body == body
    assert raw.endswith(codec.encode(body, request.version))
    assert raw.endswith(layout.encode(body, request.version))


def test_own_client_produces_the_captured_bytes() -> None:
    client = ClientConnection("rdkafka")
    for _ in range(3):
        client.request(ApiVersionsRequest(), 0)
    _, chunks = client.request(a_produce(RDKAFKA_BATCH, 30000), 10)
    raw = bytes.fromhex(CAPTURED[3][0])
    assert b"".join(chunks) == len(raw).to_bytes(4, "big") + raw


def test_captured_batch_contains_flight_record() -> None:
    server = ServerConnection(EVERYTHING)
    raw = bytes.fromhex(CAPTURED[3][0])
    server.feed(len(raw).to_bytes(4, "big") + raw)
    request = server.next_request()
    assert request is not None
    records = request.body.topic_data[0].partition_data[0].records
    assert records == RDKAFKA_BATCH and b"N14228" in bytes(records)


ANSWERS = [
    (
        ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]),
        0,
        "0000" + "00000001" + "001200000004",
    ),
    (
        ApiVersionsResponse(
            error_code=0,
            api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
            finalized_features_epoch=5,
        ),
        3,
        "0000" + "02" + "001200000004" + "00" + "00000000" + "01" + "01" + "08" + "0000000000000005",
    ),
    (
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="flights",
                    partition_responses=[
                        PartitionProduceResponse(
                            index=1, error_code=2530, base_offset=-1, log_start_offset=0, generation=7
                        )
                    ],
                )
            ]
        ),
        9,
        "02"
        + "08666c6967687473"
        + "02"
        + "00000001"
        + "09e2"
        + "ff" * 8
        + "ff" * 8
        + "00" * 8
        # no record errors, no message, one tag: 2531 of four bytes
        + "01"
        + "00"
        + "01"
        + "e313"
        + "04"
        + "00000007"
        + "00"
        + "00000000"
        + "00",
    ),
]


@pytest.mark.parametrize(("response", "version", "wire"), ANSWERS, ids=["v0", "v3", "produce"])
def test_handwritten_responses_match_codec_and_layout(response: Any, version: int, wire: str) -> None:
    assert codec.encode(response, version).hex() == wire
    assert layout.encode(response, version).hex() == wire
    assert codec.decode(type(response), version, bytes.fromhex(wire))[0] == response


def test_every_registered_api_has_its_messages() -> None:
    for api in APIS:
        assert api.request.__name__ == api.name + "Request"
        assert api.response.__name__ == api.name + "Response"
    assert BY_NAME["Fetch"].last_version == 18
