"""Records of share groups have the bytes of Kafka 4.2's classes."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.protocol import share_group_records as records
from anabranch.protocol.consumer_group_records import TopicPartitions
from tests.protocol.record_bytes import check_bytes

ID = bytes(range(16))
CASES: dict[str, tuple[Any, Any, str, str]] = {
    "member": (
        records.ShareGroupMemberMetadataKey(group_id="g", member_id="m"),
        records.ShareGroupMemberMetadataValue(client_id="c", client_host="/h", subscribed_topic_names=["t"]),
        "000a00016700016d",
        "0000000263032f6802027400",
    ),
    "group": (
        records.ShareGroupMetadataKey(group_id="g"),
        records.ShareGroupMetadataValue(epoch=3, metadata_hash=-5),
        "000b000167",
        "000000000003fffffffffffffffb00",
    ),
    "current": (
        records.ShareGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        records.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=0,
            assigned_partitions=[TopicPartitions(topic_id=ID, partitions=[0, 300])],
        ),
        "000e00016700016d",
        "000000000002000000010002000102030405060708090a0b0c0d0e0f03000000000000012c0000",
    ),
    "states": (
        records.ShareGroupStatePartitionMetadataKey(group_id="g"),
        records.ShareGroupStatePartitionMetadataValue(
            initializing_topics=[],
            initialized_topics=[records.TopicPartitionsInfo(topic_id=ID, topic_name="t", partitions=[0, 1])],
            deleting_topics=[],
        ),
        "000f000167",
        "00000102000102030405060708090a0b0c0d0e0f0274030000000000000001000100",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_records_equal_kafka_bytes(name: str) -> None:
    check_bytes(*CASES[name])
