"""An exchange has its request, outcome and subject, without record bytes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from anabranch.faults.matching import Matcher, RequestView
from anabranch.faults.rule import Rule
from anabranch.journal.entry import KEPT_BYTES, JournalEntry
from anabranch.journal.journal import remembering
from anabranch.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from anabranch.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import BY_NAME
from tests.anabranch.faults.samples import PEER, SURROUNDINGS


def entry(api: str, version: int, body: Any) -> JournalEntry:
    return JournalEntry(
        1, 10.0, RequestView(DecodedRequest(BY_NAME[api], version, 4, "app", body), PEER, 0, SURROUNDINGS)
    )


def is_about(one: JournalEntry, **said: Any) -> bool:
    return one.is_about(Matcher(Rule(**said)))


def test_produce_is_recorded_without_record_bytes() -> None:
    data = TopicProduceData(name="a", partition_data=[PartitionProduceData(index=3, records=b"x" * 70)])
    one = entry("Produce", 9, ProduceRequest(acks=1, timeout_ms=5, topic_data=[data]))
    row = PartitionProduceResponse(index=3, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)
    one.end(10.5, "answered", ProduceResponse(responses=[TopicProduceResponse(name="a", partition_responses=[row])]))
    told = one.row()
    assert json.loads(json.dumps(told)) == told
    assert told["request"]["topic_data"][0]["partition_data"][0]["records"] == {"bytes": 70}
    assert told["response"]["responses"][0]["partition_responses"][0]["error_code"] == 6
    assert (told["ms"], told["errors"], told["outcome"]) == (500.0, ["NOT_LEADER_OR_FOLLOWER"], "answered")
    assert (told["api"], told["version"], told["client_id"], told["peer"]) == ("Produce", 9, "app", "127.0.0.1:4711")
    assert is_about(one, topic=("a",), partition=(3,)) and not is_about(one, partition=(4,))
    assert not is_about(one, between_brokers=True) and not is_about(one, api=("Fetch",))


def produce(content: bytes | memoryview) -> ProduceRequest:
    data = TopicProduceData(name="a", partition_data=[PartitionProduceData(index=3, records=content)])
    return ProduceRequest(acks=1, timeout_ms=5, topic_data=[data])


def test_large_request_with_records_does_not_keep_its_frame() -> None:
    rows = {}
    for size_bytes in (KEPT_BYTES, KEPT_BYTES + 1):
        frame = bytearray(b"x" * size_bytes)
        one = entry("Produce", 9, produce(memoryview(frame)))
        if size_bytes > KEPT_BYTES:
            frame.clear()  # BufferError if a view of it is left
        assert is_about(one, topic=("a",), partition=(3,)) and not is_about(one, partition=(4,))
        rows[size_bytes] = one.row()["request"]
    assert rows[KEPT_BYTES] is not None
    rows[KEPT_BYTES]["topic_data"][0]["partition_data"][0]["records"]["bytes"] += 1
    assert rows[KEPT_BYTES] == rows[KEPT_BYTES + 1]


@pytest.mark.parametrize("size_bytes", [70, KEPT_BYTES + 1])
def test_response_with_records_keeps_no_memory_of_the_log_and_does_not_change_with_it(size_bytes: int) -> None:
    log = bytearray(b"x" * size_bytes)
    one = entry("Fetch", 11, FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[]))
    row = PartitionData(partition_index=3, error_code=0, high_watermark=7, records=memoryview(log))
    one.end(10.5, "answered", FetchResponse(responses=[FetchableTopicResponse(topic="a", partitions=[row])]))
    del row
    log.clear()  # BufferError if a view of it is left
    (partition,) = one.row()["response"]["responses"][0]["partitions"]  # type: ignore[index]
    assert (partition["high_watermark"], partition["records"]) == (7, {"bytes": size_bytes})
    assert is_about(one, topic=("a",), partition=(3,)) and not is_about(one, topic=("b",))


def test_topic_id_is_looked_up_before_the_topic_is_deleted() -> None:
    names = {b"i" * 16: "a"}
    at = dataclasses.replace(SURROUNDINGS, topic_name=remembering(names.get))
    body = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[])
    one = JournalEntry(1, 10.0, RequestView(DecodedRequest(BY_NAME["Fetch"], 13, 4, "app", body), PEER, 0, at))
    row = PartitionData(partition_index=3, error_code=0, high_watermark=7, records=None)
    topic = FetchableTopicResponse(topic_id=b"i" * 16, partitions=[row])
    one.end(10.5, "answered", FetchResponse(responses=[topic]))
    names.clear()
    assert is_about(one, topic=("a",), partition=(3,)) and not is_about(one, topic=("b",))


def test_topics_missing_in_request_are_taken_from_response() -> None:
    one = entry("Metadata", 9, MetadataRequest(topics=None))
    assert not is_about(one, topic=("a",))
    answer = MetadataResponse(brokers=[], topics=[MetadataResponseTopic(error_code=0, name="a", partitions=[])])
    one.end(10.0, "answered", answer)
    assert is_about(one, topic=("a",)) and not is_about(one, topic=("b",))


def test_open_exchange_has_no_duration() -> None:
    row = entry("Metadata", 9, MetadataRequest(topics=[])).row()
    assert (row["ms"], row["outcome"], row["response"]) == (None, "open", None)
