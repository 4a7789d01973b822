from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
from aiokafka.record.control_record import ControlRecord as AioControl
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import check_crc, iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import ControlRecord, ControlType, build_end_transaction, read_control


@pytest.mark.parametrize(("commit", "kind"), [(True, ControlType.COMMIT), (False, ControlType.ABORT)])
def test_transaction_markers_survive_the_round_trip(commit: bool, kind: ControlType) -> None:
    batch = build_end_transaction(
        commit=commit, producer_id=9, producer_epoch=2, coordinator_epoch=5, timestamp_ms=77, leader_epoch=3
    )
    [(_, header)] = iter_batches(batch)
    assert check_crc(batch, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.record_count, header.base_sequence, header.max_timestamp) == (1, -1, 77)
    assert (header.producer_id, header.producer_epoch, header.partition_leader_epoch) == (9, 2, 3)
    assert read_control(batch) == ControlRecord(kind, 5)
    assert read_control(b"before" + batch, 6).ends_transaction


def test_markers_are_read_by_another_implementation() -> None:
    for commit, marker in ((True, COMMIT_MARKER), (False, ABORT_MARKER)):
        batch = build_end_transaction(
            commit=commit, producer_id=9, producer_epoch=2, coordinator_epoch=5, timestamp_ms=77
        )
        reader = AioBatch(batch)
        assert reader.is_control_batch
        assert AioControl.parse(next(iter(reader)).key) == marker


def control(key: bytes | None, value: bytes | None, records: int = 1) -> bytes:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(key, value)
    return builder.build(control=True)


@pytest.mark.parametrize(
    ("number", "kind"), [(2, ControlType.LEADER_CHANGE), (3, ControlType.SNAPSHOT_HEADER), (99, ControlType.UNKNOWN)]
)
def test_other_control_records_end_no_transaction(number: int, kind: ControlType) -> None:
    found = read_control(control(b"\0\0\0" + bytes([number]), None))
    assert found == ControlRecord(kind)
    assert not found.ends_transaction


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        (control(None, b""), "without a kind"),
        (control(b"\0\0\0", b""), "without a kind"),
        (control(b"\xff\xff\0\1", b""), "version -1"),
        (control(b"\0\0\0\1", None), "without a coordinator epoch"),
        (control(b"\0\0\0\1", b"\0\0\0\0\0"), "without a coordinator epoch"),
        (control(b"\0\0\0\1", b"\0\0\0\0\0\1", records=2), "2 records"),
    ],
)
def test_malformed_control_record_is_refused(batch: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        read_control(batch)
