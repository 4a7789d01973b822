"""Embedded consumer protocol messages, in the bytes of Kafka's ConsumerProtocol."""

from __future__ import annotations

import struct

import pytest

from anabranch.protocol import consumer_protocol as cp
from anabranch.protocol.errors import DecodeError

SUBSCRIPTION = cp.ConsumerProtocolSubscription(
    topics=["a"],
    user_data=b"u",
    owned_partitions=[cp.TopicPartitions(topic="a", partitions=[0, 2])],
    generation_id=4,
    rack_id="r",
)
ASSIGNMENT = cp.ConsumerProtocolAssignment(
    assigned_partitions=[cp.TopicPartitions(topic="a", partitions=[1])], user_data=None
)


def test_subscription_and_assignment_survive_the_round_trip() -> None:
    assert cp.decode_subscription(cp.encode_subscription(SUBSCRIPTION)) == SUBSCRIPTION
    assert cp.decode_assignment(cp.encode_assignment(ASSIGNMENT)) == ASSIGNMENT


def test_subscription_of_version_0_has_kafka_layout() -> None:
    data = struct.pack(">hih", 0, 1, 1) + b"a" + struct.pack(">i", -1)
    found = cp.decode_subscription(data)
    assert (found.topics, found.user_data, found.owned_partitions, found.generation_id) == (["a"], None, [], -1)


def test_newer_version_is_read_as_newest_known_one() -> None:
    data = bytearray(cp.encode_subscription(SUBSCRIPTION)) + b"more"
    struct.pack_into(">h", data, 0, 99)
    assert cp.decode_subscription(bytes(data)) == SUBSCRIPTION


def test_generations_behind_an_assignment_are_ignored_by_others() -> None:
    data = cp.encode_assignment(ASSIGNMENT, b"generations")
    assert cp.decode_assignment(data) == ASSIGNMENT
    assert cp.decode_generations(data) == b"generations"
    plain = cp.encode_assignment(ASSIGNMENT)
    assert (
        cp.decode_generations(plain) == cp.decode_generations(plain + b"of others") == cp.decode_generations(b"") == b""
    )


def test_empty_assignment_has_no_partitions_and_malformed_one_is_refused() -> None:
    assert cp.decode_assignment(b"").assigned_partitions == []
    assert cp.assigned_partitions(cp.encode_assignment(ASSIGNMENT)) == (("a", 1),)
    assert cp.assigned_partitions(b"") == cp.assigned_partitions(b"\0") == ()
    for data in (b"\0", struct.pack(">h", -1), cp.encode_assignment(ASSIGNMENT)[:-1], b"\0\0\xff\xff\xff\xff"):
        with pytest.raises(DecodeError):
            cp.decode_assignment(data)


def test_filtered_assignment_keeps_everything_else() -> None:
    mine = [cp.TopicPartitions(topic="t", partitions=[0, 1, 2]), cp.TopicPartitions(topic="u", partitions=[1])]
    data = cp.encode_assignment(
        cp.ConsumerProtocolAssignment(assigned_partitions=mine, user_data=b"own"), b"generations"
    )
    assert cp.assigned_only(data, lambda topic, index: True) == (data, [])
    left, refused = cp.assigned_only(data, lambda topic, index: index != 1)
    assert refused == [("t", 1), ("u", 1)]
    found = cp.decode_assignment(left)
    assert [(one.topic, one.partitions) for one in found.assigned_partitions] == [("t", [0, 2])]
    assert (found.user_data, cp.decode_generations(left)) == (b"own", b"generations")
    assert cp.assigned_only(b"", lambda topic, index: False) == (b"", [])
    newer = b"\0\7" + data[2:]
    assert cp.assigned_only(newer, lambda topic, index: topic == "u")[0][:2] == b"\0\7"
    with pytest.raises(DecodeError):
        cp.assigned_only(b"\0", lambda topic, index: True)
