"""Control batches: transaction markers, and the leader-change records of Raft logs.

A control batch holds exactly one record, takes one offset and is never delivered to applications. Its key gives the
kind, and its value depends on the kind. Reference: KIP-98, `ControlRecordType` and `EndTransactionMarker` of Kafka.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import NO_LEADER_EPOCH, Buffer, read_header
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.record import iter_records
from anabranch.protocol.values import value

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlType(enum.IntEnum):
    """The type of a control record. Unknown newer types are UNKNOWN: readers skip them."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4

    @classmethod
    def _missing_(cls, value: object) -> ControlType | None:
        return cls.UNKNOWN if isinstance(value, int) else None


@value
class ControlRecord:
    """The one record of a control batch. `coordinator_epoch` is -1 unless it ends a transaction."""

    type: ControlType
    coordinator_epoch: int = -1

    @property
    def ends_transaction(self) -> bool:
        """Whether this is a COMMIT or an ABORT."""
        return self.type in (ControlType.ABORT, ControlType.COMMIT)


def read_control(batch: Buffer, position: int = 0) -> ControlRecord:
    """Read the control batch at a position: UNKNOWN if compaction has emptied it. Raises DecodeError."""
    if not read_header(batch, position).record_count:
        return ControlRecord(ControlType.UNKNOWN)
    records = list(iter_records(batch, position))
    if len(records) != 1:
        raise DecodeError(f"a control batch with {len(records)} records", buffer=batch, position=position)
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise DecodeError("a control record without a kind", buffer=batch, position=position)
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise DecodeError(f"a control record of version {version}", buffer=batch, position=position)
    control = ControlRecord(ControlType(number))
    if not control.ends_transaction:
        return control
    if value is None or len(value) < _MARKER.size:
        raise DecodeError("a transaction marker without a coordinator epoch", buffer=batch, position=position)
    return ControlRecord(control.type, _MARKER.unpack_from(value)[1])


def build_end_transaction(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build the control batch that ends a producer's transaction in one partition."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    builder = BatchBuilder()
    builder.append(_KEY.pack(_VERSION, kind), _MARKER.pack(_VERSION, coordinator_epoch), timestamp_ms=timestamp_ms)
    return builder.build(producer_id, producer_epoch, transactional=True, control=True, leader_epoch=leader_epoch)
