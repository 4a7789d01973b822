from __future__ import annotations

import re
from typing import Any

import pytest

from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.connection import ClientConnection, ServerConnection
from anabranch.protocol.describe import (
    _tree,
    batches_line,
    batches_tree,
    describe_request,
    describe_response,
    request_tree,
)
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.wire import fields_of
from tests.broker.storage.unreadable import UNREADABLE
from tests.cases import for_each
from tests.protocol.messages import MESSAGES
from tests.protocol.test_codec import smallest
from tests.protocol.test_golden import AIOKAFKA_BATCH, CAPTURED, EVERYTHING, RDKAFKA_BATCH


def test_captured_produce_is_shown_as_a_tree() -> None:
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
        "    expected_topic_id: -",
    ]


def test_length_prefix_is_optional() -> None:
    frame = bytes.fromhex(CAPTURED[3][0])
    assert describe_request(len(frame).to_bytes(4, "big") + frame) == describe_request(frame)


def test_response_tree_names_its_error() -> None:
    frame = bytes.fromhex("00000005" + "00" + "00000000" + "001b" + "00")
    shown = describe_response(frame, BY_NAME["Heartbeat"], 4)
    assert shown.splitlines() == [
        "Heartbeat v4 response, correlation id 5",
        "  throttle_time_ms: 0",
        "  error_code: REBALANCE_IN_PROGRESS (27)",
    ]
    with pytest.raises(DecodeError, match="without a correlation id"):
        describe_response(b"ab", BY_NAME["Heartbeat"], 4)


def tree_of(message: Any, version: int) -> str:
    """A request as a tree, as it is received from a client."""
    server = ServerConnection(EVERYTHING)
    server.feed(b"".join(ClientConnection("me").request(message, version)[1]))
    request = server.next_request()
    assert request is not None
    return request_tree(request)


def test_lists_of_structures_are_trees_and_text_is_escaped() -> None:
    partitions = [FetchPartition(partition=p, fetch_offset=7, partition_max_bytes=1) for p in range(5)]
    fetch = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="a\nb\x1b[0m", partitions=partitions)])
    shown = tree_of(fetch, 4).splitlines()
    assert shown[0] == 'Fetch v4 request, correlation id 0, client id "me"'
    assert '    topic: "a\\nb\\x1b[0m"' in shown
    assert shown.count("      fetch_offset: 7") == 5


@for_each(MESSAGES)
def test_every_message_can_be_shown(message: type) -> None:
    shown = (re.match(r"(\w+)(\[\d+\])?:", line) for line in _tree(smallest(message), 0, 0))
    assert {one[1] for one in shown if one} == {field.name for field in fields_of(message) if field.exists(0)}


def test_batches_are_summarized_in_one_line() -> None:
    assert batches_line(RDKAFKA_BATCH + AIOKAFKA_BATCH) == "2 batches, offsets 0..0, 2 records, 160 bytes"
    assert batches_line(b"") == "0 bytes"
    assert "not batches" in batches_line(b"\xff" * 100)


def test_broken_checksum_is_shown() -> None:
    broken = bytearray(RDKAFKA_BATCH)
    broken[-2] ^= 1
    assert any("CRC WRONG" in line for line in batches_tree(broken))
    assert any(line.startswith("not a batch") for line in batches_tree(b"\xff" * 100))
    lines = list(batches_tree(UNREADABLE["nonsense"] + RDKAFKA_BATCH))
    assert sum("records cannot be read" in line for line in lines) == 1
    assert sum(line.startswith("batch ") for line in lines) == 2


def test_transaction_marker_shows_its_outcome() -> None:
    marker = build_end_transaction(commit=False, producer_id=5, producer_epoch=1, coordinator_epoch=3, timestamp_ms=1)
    assert "  ABORT, coordinator epoch 3" in list(batches_tree(marker))


def test_values_are_formatted_for_readers() -> None:
    request = ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=None)])],
    )
    shown = tree_of(request, 3)
    assert 'transactional_id: "tx"' in shown and "records: null" in shown
    topic = MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(range(16)), name=None)])
    shown = tree_of(topic, 12)
    assert "topic_id: AAECAwQFBgcICQoLDA0ODw" in shown and "name: null" in shown
