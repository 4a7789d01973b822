"""The messages between a group's members and their leader: the bytes inside JoinGroup and SyncGroup.

Never flexible; an int16 version comes first. A reader of a lower version takes the prefix it knows and ignores the
rest, so the version read is the lower of the two sides'. Source: Kafka's ConsumerProtocolSubscription/Assignment.json.

The topic generations of an assignment (rule R19) follow the message, after a mark, because its user data belongs to the
assignor. Other clients ignore that too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from anabranch.protocol import codec
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.wire import Bytes, Int32, Text, message, since

PROTOCOL_TYPE: Final = "consumer"
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3

_version_prefix: Final = struct.Struct(">h")
GENERATIONS_MARK: Final = b"KIP-253:"


@message
class TopicPartitions:
    """Some partitions of one topic."""

    topic: Text
    partitions: list[Int32]


@message
class ConsumerProtocolSubscription:
    """A member's subscription: its topics, and its owned partitions."""

    topics: list[Text]
    user_data: Bytes | None
    owned_partitions: list[TopicPartitions] = since(1, absent=list)
    generation_id: Int32 = since(2, absent=-1)
    rack_id: Text | None = since(3, absent=None)


@message
class ConsumerProtocolAssignment:
    """The partitions that a member is assigned."""

    assigned_partitions: list[TopicPartitions]
    user_data: Bytes | None


Message = TypeVar("Message", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def encode_subscription(subscription: ConsumerProtocolSubscription) -> bytes:
    """Encode the metadata of one protocol in JoinGroup."""
    return _version_prefix.pack(SUBSCRIPTION_VERSION) + codec.encode(subscription, SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription, of any version. Raises DecodeError."""
    return _decode(ConsumerProtocolSubscription, SUBSCRIPTION_VERSION, data)[0]


def encode_assignment(
    assignment: ConsumerProtocolAssignment, generations: bytes = b"", version: int = ASSIGNMENT_VERSION
) -> bytes:
    """Encode the assignment of one member in SyncGroup, with data to follow it, if any."""
    version = max(0, min(version, ASSIGNMENT_VERSION))
    encoded = _version_prefix.pack(version) + codec.encode(assignment, version)
    return encoded + GENERATIONS_MARK + generations if generations else encoded


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a leader's assignment, of any version; no bytes mean no partitions. Raises DecodeError."""
    if not data:
        return ConsumerProtocolAssignment(assigned_partitions=[], user_data=None)
    return _decode(ConsumerProtocolAssignment, ASSIGNMENT_VERSION, data)[0]


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment; none if there is none, or it is of another protocol."""
    try:
        decoded = decode_assignment(data)
    except DecodeError:
        return ()
    return tuple(TopicPartition(row.topic, index) for row in decoded.assigned_partitions for index in row.partitions)


def assigned_only(data: bytes, keeps: Callable[[str, int], bool]) -> tuple[bytes, list[tuple[str, int]]]:
    """Remove the partitions that `keeps` refuses from an assignment; return it and those. The rest stays unchanged.

    Raises DecodeError for an invalid assignment.
    """
    if not data:
        return data, []
    assignment, end = _decode(ConsumerProtocolAssignment, ASSIGNMENT_VERSION, data)
    refused = [
        (topic.topic, index)
        for topic in assignment.assigned_partitions
        for index in topic.partitions
        if not keeps(topic.topic, index)
    ]
    if not refused:
        return data, []
    left = [
        TopicPartitions(topic=topic.topic, partitions=[one for one in topic.partitions if keeps(topic.topic, one)])
        for topic in assignment.assigned_partitions
    ]
    kept = ConsumerProtocolAssignment(
        assigned_partitions=[topic for topic in left if topic.partitions], user_data=assignment.user_data
    )
    version = min(_version_prefix.unpack_from(data)[0], ASSIGNMENT_VERSION)
    return data[: _version_prefix.size] + codec.encode(kept, version) + data[end:], refused


def decode_generations(data: bytes) -> bytes:
    """Return the data that follows an assignment by this project's clients; empty for others."""
    if not data:
        return b""
    _, end = _decode(ConsumerProtocolAssignment, ASSIGNMENT_VERSION, data)
    behind = data[end:]
    return behind[len(GENERATIONS_MARK) :] if behind.startswith(GENERATIONS_MARK) else b""


def _decode(message: type[Message], last_version: int, data: bytes) -> tuple[Message, int]:
    if len(data) < _version_prefix.size:
        raise DecodeError(f"{message.__name__}: {len(data)} bytes are too few for a version")
    (version,) = _version_prefix.unpack_from(data)
    if version < 0:
        raise DecodeError(f"{message.__name__}: version {version}")
    return codec.decode(message, min(version, last_version), memoryview(data), _version_prefix.size)
