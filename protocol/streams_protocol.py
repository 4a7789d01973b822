"""The user data of Kafka Streams in the consumer protocol: subscriptions to the leader, and its assignments.

Both messages begin with an int32 version and have versions 1 to 11; none is flexible. From version 3 on the sender's
newest version comes second, so that a leader can read that much of a version it does not know (version probing).

Kafka writes the topics and hosts of an assignment in Java's modified UTF-8, which differs from UTF-8 in NUL and beyond
the basic plane only: legal names have neither. It writes the topology of a task there as a count of UTF-16 code units,
which is what an array of them looks like. Source: SubscriptionInfoData.json, AssignmentInfo and ConsumerProtocolUtils
of Kafka.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from anabranch.protocol import codec
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.wire import Bytes, Int8, Int32, Int64, Text, UInt16, Uuid, message, since, until

LATEST_VERSION: Final = 11
UNKNOWN_VERSION: Final = -1
"""Versions 1 and 2 do not have their sender's newest version."""
NO_REBALANCE_MS: Final = 2**63 - 1

_VERSION: Final = struct.Struct(">i")
_VERSIONS: Final = struct.Struct(">ii")


@message
class WireTask:
    """A task in an assignment."""

    subtopology: Int32
    partition: Int32
    named_topology: list[UInt16] = since(10, absent=list)
    """UTF-16 code units; empty for the usual single topology."""


@message
class PreviousTask:
    """A task in a subscription before v7."""

    subtopology: Int32
    partition: Int32


@message
class PartitionOffsetSum:
    """One task of a subtopology, up to v9."""

    partition: Int32
    offset_sum: Int64


@message
class TaskOffsetSums:
    """One subtopology up to v9, one task from v10 on."""

    subtopology: Int32
    partition: Int32 = since(10, absent=-1)
    offset_sum: Int64 = since(10, absent=0)
    named_topology: Text | None = since(10, absent=None)
    partitions: list[PartitionOffsetSum] = until(9, absent=list)


@message
class ClientTag:
    """A rack tag of an instance (KIP-708)."""

    key: Bytes
    value: Bytes


@message
class StreamsSubscription:
    """v2 endpoint; v3 newest version; v7 offset sums (KIP-441); v8 unique field; v9 error; v10 topologies; v11 tags."""

    version: Int32
    latest_supported_version: Int32 = since(3, absent=UNKNOWN_VERSION)
    process_id: Uuid
    previous_tasks: list[PreviousTask] = until(6, absent=list)
    standby_tasks: list[PreviousTask] = until(6, absent=list)
    user_end_point: Bytes = since(2, absent=b"")
    task_offset_sums: list[TaskOffsetSums] = since(7, absent=list)
    unique_field: Int8 = since(8, absent=0)
    error_code: Int32 = since(9, absent=0)
    client_tags: list[ClientTag] = since(11, absent=list)


@message
class NamedPartition:
    """A partition with its topic's name."""

    topic: Text
    partition: Int32


@message
class StandbyTask:
    """A standby task, with its source partitions."""

    task: WireTask
    partitions: list[NamedPartition]


@message
class HostPartitions:
    """The tasks of one instance, up to v4."""

    host: Text
    port: Int32
    partitions: list[NamedPartition]


@message
class TopicIndex:
    """An entry of the dictionary of topics."""

    index: Int32
    topic: Text


@message
class IndexedPartition:
    """A partition whose topic is in the dictionary."""

    topic_index: Int32
    partition: Int32


@message
class IndexedHostPartitions:
    """One instance's active or standby partitions, from v5 on."""

    host: Text
    port: Int32
    partitions: list[IndexedPartition]


@message
class StreamsAssignment:
    """v2 hosts; v3 common version; v4 error; v5 topics by index (KAFKA-7149); v6 standby hosts; v7 next rebalance."""

    version: Int32
    commonly_supported_version: Int32 = since(3, absent=UNKNOWN_VERSION)
    active_tasks: list[WireTask]
    """The task of each assigned partition, in the order of partitions."""
    standby_tasks: list[StandbyTask]
    hosts: list[HostPartitions] = since(2, until=4, absent=list)
    topics: list[TopicIndex] = since(5, absent=list)
    active_hosts: list[IndexedHostPartitions] = since(5, absent=list)
    standby_hosts: list[IndexedHostPartitions] = since(6, absent=list)
    error_code: Int32 = since(4, absent=0)
    next_rebalance_ms: Int64 = since(7, absent=NO_REBALANCE_MS)


Message = TypeVar("Message", StreamsSubscription, StreamsAssignment)


def encode(message: StreamsSubscription | StreamsAssignment) -> bytes:
    """Encode a message at its own version. Raises ValueError for an unknown version."""
    if not 1 <= message.version <= LATEST_VERSION:
        raise ValueError(f"{type(message).__name__} has versions 1 to {LATEST_VERSION}, not {message.version}")
    return codec.encode(message, message.version)


def decode_subscription(data: bytes) -> StreamsSubscription:
    """Decode a member's subscription; of a newer version, only its version fields. Raises DecodeError."""
    version = version_of(data, "StreamsSubscription")
    if version > LATEST_VERSION:
        if len(data) < _VERSIONS.size:
            raise DecodeError(f"StreamsSubscription: version {version} does not say what is supported", buffer=data)
        version, latest = _VERSIONS.unpack_from(data)
        return StreamsSubscription(version=version, latest_supported_version=latest, process_id=b"")
    return _decode(StreamsSubscription, version, data)


def decode_assignment(data: bytes) -> StreamsAssignment:
    """Decode a leader's assignment. Raises DecodeError, also for a version that a leader must not use."""
    version = version_of(data, "StreamsAssignment")
    if version > LATEST_VERSION:
        raise DecodeError(f"StreamsAssignment: version {version}, newest known {LATEST_VERSION}", buffer=data)
    return _decode(StreamsAssignment, version, data)


def version_of(data: bytes, what: str) -> int:
    """Return the version at the start of user data."""
    if len(data) < _VERSION.size:
        raise DecodeError(f"{what}: {len(data)} bytes are too few for a version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 1:
        raise DecodeError(f"{what}: version {version}", buffer=data)
    return version


def _decode(message: type[Message], version: int, data: bytes) -> Message:
    decoded, end = codec.decode(message, version, data)
    if end != len(data):
        raise DecodeError(f"{message.__name__}: {len(data) - end} bytes left over", buffer=data, position=end)
    return decoded
