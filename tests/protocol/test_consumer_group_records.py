"""Records of KIP-848 groups have the bytes of Kafka 4.1's classes."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.protocol import consumer_group_records as records
from anabranch.protocol import group_records
from anabranch.protocol.consumer_group_records import ClassicMemberMetadata, ClassicProtocol, TopicPartitions
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.internal_topics import decode_key
from tests.protocol.record_bytes import check_bytes

ROWS = [TopicPartitions(topic_id=bytes(range(16)), partitions=[0, 300])]
CASES: dict[str, tuple[Any, Any, str, str]] = {
    "group": (
        records.ConsumerGroupMetadataKey(group_id="g"),
        records.ConsumerGroupMetadataValue(epoch=3, metadata_hash=-5),
        "0003000167",
        "000000000003010008fffffffffffffffb",
    ),
    "classic member": (
        records.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        records.ConsumerGroupMemberMetadataValue(
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            rebalance_timeout_ms=5,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=7, supported_protocols=[ClassicProtocol(name="range", metadata=b"\1\2")]
            ),
        ),
        "000500016700016d",
        "000000000263032f680202740000000005000100110100000007020672616e67650301020000",
    ),
    "expression": (
        records.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="x"),
        records.ConsumerGroupRegularExpressionValue(topics=["a"], version=3, timestamp=9),
        "0010000167000178",
        "00000202610000000000000003000000000000000900",
    ),
    "target": (
        records.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        records.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=ROWS),
        "000700016700016d",
        "000002000102030405060708090a0b0c0d0e0f03000000000000012c0000",
    ),
    "current": (
        records.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        records.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=1,
            assigned_partitions=[],
            partitions_pending_revocation=ROWS,
        ),
        "000800016700016d",
        "000000000002000000010101" + "02000102030405060708090a0b0c0d0e0f03000000000000012c0000",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_records_equal_kafka_bytes(name: str) -> None:
    check_bytes(*CASES[name])


def test_topic_metadata_of_kafka_4_0_is_skipped() -> None:
    key = decode_key(bytes.fromhex("0004000167"))
    assert key == records.ConsumerGroupPartitionMetadataKey(group_id="g")
    assert group_records.decode_value(key, b"anything") is None


def test_newer_or_missing_values_are_refused() -> None:
    key = records.ConsumerGroupMetadataKey(group_id="g")
    for data in (b"", b"\0", bytes.fromhex("000100000003")):
        with pytest.raises(DecodeError):
            group_records.decode_value(key, data)
