"""The stored state of one group in one share partition, and its records in `__share_group_state`.

A record is a snapshot, with the whole state, or an update, with the changes since. The last written state of an offset
counts; states below the start offset are dropped. Old partition leaders are fenced by leader epoch, previous
incarnations of a group by state epoch. Pure. Source: KIP-932; Kafka's ShareSnapshotKey/Value.json,
ShareUpdateKey/Value.json, `ShareCoordinatorShard`, `PersisterStateBatchCombiner`.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import ClassVar, Final

from anabranch.broker.coordinators.share_partitions.in_flight import RecordState, StateBatch
from anabranch.protocol import codec
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.values import slotted, value
from anabranch.protocol.wire import Int8, Int16, Int32, Int64, Text, Uuid, message, tagged

UNCHANGED: Final = -1
FRESH: Final = -1
"""The group's settings determine the start offset."""
LOG_START: Final = 0
"""The group starts with the partition's first record."""
SNAPSHOT: Final = 0
UPDATE: Final = 1

_VERSION: Final = struct.Struct(">h")


@value
class ShareKey:
    """A group and a partition that it shares."""

    group: str
    topic_id: bytes
    partition: int


@message
class StoredKey:
    """The key of both kinds of records."""

    group_id: Text
    topic_id: Uuid
    partition: Int32


@message
class StoredBatch:
    """The stored state of a range of offsets."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message
class SnapshotValue:
    """The value of a snapshot: the whole state."""

    flexible_from: ClassVar[int] = 0
    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = tagged(0, since=0, absent=-1)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StoredBatch]


@message
class UpdateValue:
    """The value of an update: the changes since the snapshot."""

    flexible_from: ClassVar[int] = 0
    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = tagged(0, since=0, absent=-1)
    state_batches: list[StoredBatch]


@slotted(eq=False)
class ShareState:
    """The state of a group in a share partition."""

    state_epoch: int = 0
    leader_epoch: int = -1
    start_offset: int = FRESH
    delivery_complete_count: int = -1
    batches: list[StateBatch] = field(default_factory=list)
    snapshot_epoch: int = 0
    created_ms: int = 0
    updates: int = 0
    """The number of updates since the last snapshot."""

    def fence(self, *, leader_epoch: int, state_epoch: int | None = None) -> None:
        """Raise FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH for an old epoch."""
        if leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {leader_epoch} < {self.leader_epoch}")
        if state_epoch is not None and state_epoch < self.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, f"state epoch {state_epoch} < {self.state_epoch}")

    def next_snapshot(self) -> ShareState:
        """Return a copy with the next snapshot epoch."""
        return dataclasses.replace(self, batches=list(self.batches), snapshot_epoch=self.snapshot_epoch + 1, updates=0)

    def take(self, start_offset: int, batches: Iterable[StateBatch], complete_count: int, leader_epoch: int) -> None:
        """Apply an update.

        The start offset never decreases. A leader that got no response to a change takes it as failed; if it was
        stored, the leader's next change has a lower start. (In Kafka the start then decreases.)
        """
        self.start_offset = max(self.start_offset, start_offset)
        self.delivery_complete_count = complete_count
        self.leader_epoch = max(self.leader_epoch, leader_epoch)
        self.batches = combine(self.batches, batches, self.start_offset)


def combine(old: Sequence[StateBatch], new: Iterable[StateBatch], start: int) -> list[StateBatch]:
    """Merge new states into old ones from `start` on; adjacent ranges of one state are merged."""
    kept = list(old)
    for one in new:
        kept = [part for before in kept for part in _without(before, one)]
        kept.append(one)
    result: list[StateBatch] = []
    for one in sorted(kept, key=lambda batch: batch.first):
        if one.last < start:
            continue
        first = max(one.first, start)
        last = result[-1] if result else None
        if (
            last is not None
            and last.last + 1 == first
            and (last.state, last.delivery_count) == (one.state, one.delivery_count)
        ):
            result[-1] = StateBatch(last.first, one.last, one.state, one.delivery_count)
        else:
            result.append(StateBatch(first, one.last, one.state, one.delivery_count))
    return result


def _without(one: StateBatch, hole: StateBatch) -> Iterable[StateBatch]:
    if one.first < hole.first:
        yield StateBatch(one.first, min(one.last, hole.first - 1), one.state, one.delivery_count)
    if one.last > hole.last:
        yield StateBatch(max(one.first, hole.last + 1), one.last, one.state, one.delivery_count)


# --- records ---------------------------------------------------------------------------------------------------------


def encode_key(key: ShareKey, kind: int) -> bytes:
    """Encode the key of a snapshot or an update."""
    stored = StoredKey(group_id=key.group, topic_id=key.topic_id, partition=key.partition)
    return _VERSION.pack(kind) + codec.encode(stored, 0)


def decode_key(data: bytes) -> tuple[ShareKey, int] | None:
    """Decode a record's key to the share key and kind; None for kinds of newer software. Raises DecodeError."""
    if len(data) < _VERSION.size:
        raise DecodeError("no schema version", buffer=data)
    (kind,) = _VERSION.unpack_from(data)
    if kind not in (SNAPSHOT, UPDATE):
        return None
    stored: StoredKey = codec.decode(StoredKey, 0, data, _VERSION.size)[0]
    return ShareKey(stored.group_id, stored.topic_id, stored.partition), kind


def encode_snapshot(state: ShareState, now_ms: int) -> bytes:
    """Encode a snapshot of a state."""
    return _VERSION.pack(0) + codec.encode(
        SnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.created_ms,
            write_timestamp=now_ms,
            state_batches=_stored_batches(state.batches),
        ),
        0,
    )


def encode_update(
    state: ShareState, start_offset: int, batches: Iterable[StateBatch], complete_count: int, leader_epoch: int
) -> bytes:
    """Encode an update of a state."""
    return _VERSION.pack(0) + codec.encode(
        UpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=_stored_batches(batches),
        ),
        0,
    )


def restore(before: ShareState | None, kind: int, data: bytes) -> ShareState:
    """Return the state after another record of its key. Raises DecodeError."""
    if kind == SNAPSHOT:
        snapshot: SnapshotValue = codec.decode(SnapshotValue, 0, data, _VERSION.size)[0]
        return ShareState(
            state_epoch=snapshot.state_epoch,
            leader_epoch=snapshot.leader_epoch,
            start_offset=snapshot.start_offset,
            delivery_complete_count=snapshot.delivery_complete_count,
            batches=_batches(snapshot.state_batches, data),
            snapshot_epoch=snapshot.snapshot_epoch,
            created_ms=snapshot.create_timestamp,
        )
    if before is None:
        raise DecodeError("an update without a snapshot before it", buffer=data)
    update: UpdateValue = codec.decode(UpdateValue, 0, data, _VERSION.size)[0]
    before.take(
        update.start_offset, _batches(update.state_batches, data), update.delivery_complete_count, update.leader_epoch
    )
    before.updates += 1
    return before


def _stored_batches(batches: Iterable[StateBatch]) -> list[StoredBatch]:
    return [
        StoredBatch(
            first_offset=one.first, last_offset=one.last, delivery_state=one.state, delivery_count=one.delivery_count
        )
        for one in batches
    ]


def _batches(stored: Iterable[StoredBatch], data: bytes) -> list[StateBatch]:
    try:
        return [
            StateBatch(one.first_offset, one.last_offset, RecordState(one.delivery_state), one.delivery_count)
            for one in stored
        ]
    except ValueError as error:
        raise DecodeError(str(error), buffer=data) from None
