from __future__ import annotations

import pytest

from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.connection import ClientConnection, ServerConnection
from anabranch.protocol.describe import (
    batches_line,
    batches_tree,
    describe_request,
    describe_response,
    message_line,
    message_tree,
    request_line,
)
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.registry import BY_NAME
from tests.broker.storage.unreadable import UNREADABLE
from tests.protocol.messages import MESSAGES
from tests.protocol.test_codec import smallest
from tests.protocol.test_golden import AIOKAFKA_BATCH, CAPTURED, EVERYTHING, RDKAFKA_BATCH


def test_a_captured_produce_as_a_tree() -> None:
    shown = describe_request(bytes.fromhex(CAPTURED[3][0]))
    assert shown.splitlines() == [
        'Produce v10 request, correlation id 3, client id "rdkafka"',
        "  transactional_id: null",
        "  acks: -1",
        "  timeout_ms: 30000",
        "  topic_data[0]:",
        '    name: "flights"',
        "    partition_data[0]:",
        "      index: 0",
        "      records: <1 batch, offsets 0..0, 1 record, 80 bytes>",
        "        batch 0..0: 1 record, leader epoch 0, compression none, producer 7 epoch 0 from sequence 0, crc ok",
        '          0 at 1356998400000: "N14228" -> "UA1545"',
        "      generation: -1",
        "    undeleted_partition_count: -1",
    ]


def test_the_length_in_front_makes_no_difference() -> None:
    frame = bytes.fromhex(CAPTURED[3][0])
    assert describe_request(len(frame).to_bytes(4, "big") + frame) == describe_request(frame)


def test_a_response_as_a_tree_names_its_error() -> None:
    frame = bytes.fromhex("00000005" + "00" + "00000000" + "001b" + "00")
    shown = describe_response(frame, BY_NAME["Heartbeat"], 4)
    assert shown.splitlines() == [
        "Heartbeat v4 response, correlation id 5",
        "  throttle_time_ms: 0",
        "  error_code: REBALANCE_IN_PROGRESS (27)",
    ]
    with pytest.raises(DecodeError, match="without a correlation id"):
        describe_response(b"ab", BY_NAME["Heartbeat"], 4)


def test_a_request_in_one_line() -> None:
    server = ServerConnection(EVERYTHING)
    partitions = [FetchPartition(partition=p, fetch_offset=7, partition_max_bytes=1) for p in range(5)]
    fetch = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="flights", partitions=partitions)])
    server.receive(b"".join(ClientConnection("me").request(fetch, 4)[1]))
    request = server.next_request()
    assert request is not None
    assert request_line(request) == (
        'Fetch v4 #0 "me" max_wait_ms=500 min_bytes=1 topics=[(topic="flights" partitions=['
        "(partition=0 fetch_offset=7 partition_max_bytes=1), (partition=1 fetch_offset=7 partition_max_bytes=1), "
        "(partition=2 fetch_offset=7 partition_max_bytes=1), 2 more])]"
    )


def test_a_line_is_a_line_whatever_is_in_it() -> None:
    line = message_line(MetadataRequest(topics=[MetadataRequestTopic(name="a\nb\x1b[0m" + "x" * 1000)]))
    assert "\n" not in line and "\x1b" not in line and "a\\nb" in line
    assert len(line) < 450 and line.endswith("characters)")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_message_can_be_shown(message: type) -> None:
    value = smallest(message)
    assert message.__name__ in message_line(value)
    assert message_tree(value, 0).startswith(message.__name__)


def test_batches_in_short() -> None:
    assert batches_line(RDKAFKA_BATCH + AIOKAFKA_BATCH) == "2 batches, offsets 0..0, 2 records, 160 bytes"
    assert batches_line(b"") == "0 bytes"
    assert "not batches" in batches_line(b"\xff" * 100)


def test_a_broken_checksum_is_said() -> None:
    broken = bytearray(RDKAFKA_BATCH)
    broken[-2] ^= 1
    assert any("CRC WRONG" in line for line in batches_tree(broken))
    assert any(line.startswith("not a batch") for line in batches_tree(b"\xff" * 100))
    lines = list(batches_tree(UNREADABLE["nonsense"] + RDKAFKA_BATCH))
    assert sum("records cannot be read" in line for line in lines) == 1
    assert sum(line.startswith("batch ") for line in lines) == 2


def test_a_transaction_marker_says_what_it_ends() -> None:
    marker = build_end_transaction(commit=False, producer_id=5, producer_epoch=1, coordinator_epoch=3, timestamp_ms=1)
    assert "  ABORT, coordinator epoch 3" in list(batches_tree(marker))


def test_values_for_people() -> None:
    request = ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=None)])],
    )
    assert 'transactional_id="tx"' in message_line(request) and "records=null" in message_line(request)
    assert message_line(HeartbeatResponse(error_code=25)) == "HeartbeatResponse(error_code=UNKNOWN_MEMBER_ID (25))"
    topic = MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(range(16)), name=None)])
    assert "topic_id=AAECAwQFBgcICQoLDA0ODw name=null" in message_line(topic)
