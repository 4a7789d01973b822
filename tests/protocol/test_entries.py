"""A request of many tiny elements is refused before it takes fifty times its size in memory.

What one request may name is `max.request.partition.size.limit`, counted over all arrays at all depths and over tagged
fields. Orders of the controller, which name all partitions of a node, are bounded by their own length alone.
"""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from anabranch.protocol import codec
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from anabranch.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import ClientConnection, decode_request
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import APIS
from anabranch.protocol.varint import encode_uvarint

SERVED = {api.key: (0, api.last_version) for api in APIS}
LIMIT = 1000
TOO_MANY = r"entries above the limit of a request \(max.request.partition.size.limit\)"


def decoded(message: object, version: int) -> DecodedRequest:
    """What a server makes of a client's request."""
    _, chunks = ClientConnection("test").request(message, version)
    return decode_request(b"".join(map(bytes, chunks))[4:], SERVED, LIMIT)


@pytest.mark.parametrize("version", [0, 9, 12])
def test_element_count_of_request_is_limited(version: int) -> None:
    topics = [MetadataRequestTopic(name="t") for _ in range(LIMIT)]
    assert len(decoded(MetadataRequest(topics=topics), version).body.topics) == LIMIT
    with pytest.raises(DecodeError, match=f"Metadata v{version} topics: 1 {TOO_MANY}"):
        decoded(MetadataRequest(topics=[*topics, topics[0]]), version)


def test_elements_of_all_depths_count() -> None:
    def request(partitions: int) -> OffsetFetchRequest:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(partitions))) for _ in range(2)]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=False)

    inside = (LIMIT - 3) // 2  # a group and two topics count too
    assert decoded(request(inside), 8)
    with pytest.raises(DecodeError, match=rf"OffsetFetch v8 groups\[0\].topics\[1\].partition_indexes: 1 {TOO_MANY}"):
        decoded(request(inside + 1), 8)


@pytest.mark.parametrize("place", ["header", "body"])
def test_tagged_fields_count(place: str) -> None:
    def frame(count: int) -> bytes:
        tags = encode_uvarint(count) + b"".join(encode_uvarint(tag) + b"\0" for tag in range(3000, 3000 + count))
        header = struct.pack(">hhih", 3, 9, 1, -1)
        body = b"\x01\0\0\0"  # no topics, three switches
        return header + (tags + body + b"\0" if place == "header" else b"\0" + body + tags)

    assert decode_request(frame(5), SERVED, LIMIT)
    if place == "body":
        assert decode_request(frame(LIMIT), SERVED, LIMIT)
    with pytest.raises(DecodeError, match=TOO_MANY):
        decode_request(frame(131_073 if place == "header" else LIMIT + 1), SERVED, LIMIT)


def test_refused_request_allocates_no_more_than_its_bytes() -> None:
    """Six megabytes that once took two gigabytes and a minute."""
    body = struct.pack(">i", 2_000_000) + b"\0\x01t" * 2_000_000
    frame = struct.pack(">hhih", 3, 1, 1, -1) + body
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=TOO_MANY):
            decode_request(frame, SERVED)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_controller_requests_have_a_higher_limit() -> None:
    states = [
        StopReplicaPartitionState(partition_index=number, leader_epoch=1, delete_partition=False)
        for number in range(3 * LIMIT)
    ]
    topics = [StopReplicaTopicState(topic_name="t", partition_states=states)]
    request = StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=topics)
    assert decoded(request, 4).body == codec.decode(StopReplicaRequest, 4, codec.encode(request, 4))[0]
    empty = StopReplicaTopicState(topic_name="", partition_states=[])
    request.topic_states = [empty] * 100 * LIMIT
    with pytest.raises(DecodeError, match=TOO_MANY):
        decoded(request, 4)
