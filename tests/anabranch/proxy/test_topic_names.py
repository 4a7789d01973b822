"""Topic ids are resolved by Metadata; large responses are decoded only on demand."""

from __future__ import annotations

from anabranch.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from anabranch.proxy.topic_names import READ_AT_ONCE_BYTES, UNREAD_MAX, TopicNames
from tests.anabranch.proxy.test_addresses import frame_of


def metadata_frame(number: int, partitions: int = 1, version: int = 12) -> bytes:
    rows = [
        MetadataResponsePartition(
            error_code=0, partition_index=one, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
        )
        for one in range(partitions)
    ]
    topic = MetadataResponseTopic(error_code=0, name=f"topic-{number}", topic_id=bytes([number]) * 16, partitions=rows)
    return frame_of(MetadataResponse(brokers=[], topics=[topic]), version)


def test_names_are_learned_from_versions_with_topic_ids() -> None:
    names = TopicNames()
    names.learn(metadata_frame(1, version=9), 9)
    assert names(b"\1" * 16) is None
    names.learn(metadata_frame(1, version=10), 10)
    assert names(b"\1" * 16) == "topic-1" and names(b"\2" * 16) is None


def test_large_responses_are_decoded_on_demand_and_newest_are_kept() -> None:
    names = TopicNames()
    for number in range(1, UNREAD_MAX + 2):
        frame = metadata_frame(number, partitions=5000)
        assert len(frame) > READ_AT_ONCE_BYTES
        names.learn(frame, 12)
    assert names(b"\2" * 16) == "topic-2" and names(bytes([UNREAD_MAX + 1]) * 16) is not None
    assert names(b"\1" * 16) is None


def test_undecodable_response_names_nothing() -> None:
    names = TopicNames()
    names.learn(metadata_frame(1)[:-30], 12)
    assert names(b"\1" * 16) is None
