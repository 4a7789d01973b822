"""The records of `__consumer_offsets` and `__transaction_state`: their keys and values.

Every key and value starts with an int16 schema version. In `__consumer_offsets` a key's version is also its kind: 0 and
1 are an offset commit, 2 is a group, others are in `group_records`. Kafka writes offset values as v3 (v1 when the
commit carries its own expiry) and group values as v3; v4 is the flexible form of v3, which is read here but never
written. In `__transaction_state` everything is v0, except values of transactions of version 2, which are in the
flexible v1. A null value deletes.

Source: OffsetCommitKey/Value.json, GroupMetadataKey/Value.json, GroupMetadataManager.scala, and of transactions
TransactionLogKey/Value.json, TransactionLog.scala of Kafka.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Final

from anabranch.protocol import codec, group_records
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.wire import Bytes, Int8, Int16, Int32, Int64, Text, message, since, tagged

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3
TRANSACTION_VERSION: Final = 0

_VALUE_VERSION_LAST: Final = 4
_TRANSACTION_VALUE_VERSION_LAST: Final = 1
_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")


@message
class OffsetCommitKey:
    """The key of a group's committed offset of one partition."""

    group: Text
    topic: Text
    partition: Int32


@message
class OffsetCommitValue:
    """A committed offset of a group."""

    flexible_from: ClassVar[int] = 4
    offset: Int64
    leader_epoch: Int32 = since(3, absent=-1)
    metadata: Text
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, absent=-1, until=1)


@message
class GroupMetadataKey:
    """The key of a group's record."""

    group: Text


@message
class GroupMetadataMember:
    """A member with its subscription and assignment."""

    member_id: Text
    group_instance_id: Text | None = since(3, absent=None)
    client_id: Text
    client_host: Text
    rebalance_timeout: Int32 = since(1, absent=-1)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message
class GroupMetadataValue:
    """A generation of a group: enough to continue after a failover without a rebalance."""

    flexible_from: ClassVar[int] = 4
    protocol_type: Text
    generation: Int32
    protocol: Text | None
    leader: Text | None
    current_state_timestamp: Int64 = since(2, absent=-1)
    members: list[GroupMetadataMember]


Key = OffsetCommitKey | GroupMetadataKey


@message
class TransactionKey:
    """The key of a transactional id's record."""

    transactional_id: Text


@message
class TransactionPartitions:
    """Partitions of one topic in a transaction."""

    topic: Text
    partition_ids: list[Int32]


@message
class TransactionValue:
    """The state of a transactional id; null partitions mean that there is no transaction."""

    flexible_from: ClassVar[int] = 1
    producer_id: Int64
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionPartitions] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    previous_producer_id: Int64 = tagged(0, since=1, absent=-1)
    next_producer_id: Int64 = tagged(1, since=1, absent=-1)
    client_transaction_version: Int16 = tagged(2, since=1, absent=0)


def encode_key(key: Key) -> bytes:
    """Encode the key of a record."""
    return _encode(key, OFFSET_KEY_VERSION if isinstance(key, OffsetCommitKey) else GROUP_KEY_VERSION)


def encode_offset(value: OffsetCommitValue) -> bytes:
    """Encode the value of an offset commit; an explicit expiry only exists in the old version."""
    expires = value.expire_timestamp != -1
    return _encode(value, OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION)


class OffsetRecordEncoder:
    """Encodes the offset records of one group like `encode_key` and `encode_offset`, if there are thousands.

    Adjacent records have a topic, and all but the offset, in common. The common part is encoded once: the partition is
    the end of a key, and the offset is the first field of a value.
    """

    __slots__ = ("_common", "_group", "_key_start", "_topic", "_value_end", "_value_start")

    def __init__(self, group: str) -> None:
        self._group = group
        self._topic: str | None = None
        self._key_start = b""
        self._common: tuple[int, str, int, int] | None = None
        self._value_start = b""
        self._value_end = b""

    def key(self, topic: str, partition: int) -> bytes:
        """Encode a key."""
        if topic != self._topic:
            key = OffsetCommitKey(group=self._group, topic=topic, partition=0)
            self._key_start = encode_key(key)[: -_PARTITION.size]
            self._topic = topic
        return self._key_start + _PARTITION.pack(partition)

    def value(self, offset: int, common: tuple[int, str, int, int]) -> bytes:
        """Encode a value; `common` is its leader epoch, metadata, commit timestamp and expire timestamp."""
        if common != self._common:
            epoch, metadata, committed_ms, expires_ms = common
            encoded = encode_offset(
                OffsetCommitValue(
                    offset=0,
                    leader_epoch=epoch,
                    metadata=metadata,
                    commit_timestamp=committed_ms,
                    expire_timestamp=expires_ms,
                )
            )
            self._value_start = encoded[: _VERSION.size]
            self._value_end = encoded[_VERSION.size + _OFFSET.size :]
            self._common = common
        return self._value_start + _OFFSET.pack(offset) + self._value_end


def encode_group(value: GroupMetadataValue) -> bytes:
    """Encode the value of a group."""
    return _encode(value, GROUP_VALUE_VERSION)


def decode_key(data: bytes) -> Any | None:
    """Decode the key of a record; None for unknown newer kinds, which a reader must leave alone."""
    version = _version(data)
    if version in (0, OFFSET_KEY_VERSION):
        return codec.decode(OffsetCommitKey, version, data, _VERSION.size)[0]
    if version == GROUP_KEY_VERSION:
        return codec.decode(GroupMetadataKey, version, data, _VERSION.size)[0]
    return group_records.decode_key(version, data)


def decode_offset(data: bytes) -> OffsetCommitValue:
    """Decode the value of an offset commit. Raises DecodeError."""
    return codec.decode(OffsetCommitValue, _value_version(data, _VALUE_VERSION_LAST), data, _VERSION.size)[0]


def decode_group(data: bytes) -> GroupMetadataValue:
    """Decode the value of a group. Raises DecodeError."""
    return codec.decode(GroupMetadataValue, _value_version(data, _VALUE_VERSION_LAST), data, _VERSION.size)[0]


def encode_transaction_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id."""
    return _encode(TransactionKey(transactional_id=transactional_id), TRANSACTION_VERSION)


def encode_transaction(value: TransactionValue) -> bytes:
    """Encode the value of a transactional id; in the flexible form if the other lacks a field for it."""
    plain = value.client_transaction_version == 0
    return _encode(value, TRANSACTION_VERSION if plain else _TRANSACTION_VALUE_VERSION_LAST)


def decode_transaction_key(data: bytes) -> str | None:
    """Decode the transactional id of a record; None for unknown newer kinds."""
    if _version(data) != TRANSACTION_VERSION:
        return None
    key: TransactionKey = codec.decode(TransactionKey, TRANSACTION_VERSION, data, _VERSION.size)[0]
    return key.transactional_id


def decode_transaction(data: bytes) -> TransactionValue:
    """Decode the value of a transactional id. Raises DecodeError."""
    version = _value_version(data, _TRANSACTION_VALUE_VERSION_LAST)
    return codec.decode(TransactionValue, version, data, _VERSION.size)[0]


def _encode(schema: Any, version: int) -> bytes:
    return _VERSION.pack(version) + codec.encode(schema, version)


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise DecodeError("no schema version", buffer=data)
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _value_version(data: bytes, last: int) -> int:
    version = _version(data)
    if not 0 <= version <= last:
        raise DecodeError(f"schema version {version} is not known", buffer=data)
    return version
