"""Appends batches to the log of a partition: as its leader, or as a follower.

A leader's append checks one batch (`validation`, `producer_state`) and replaces its first 16 bytes: base offset, length
and leader epoch. Records from a client are parsed, records from a leader are trusted: a follower checks the batches
and stores them with the leader's offsets and epochs. Everything is synchronous and ends in the page cache.

Invariants: a refused batch leaves the log unchanged; of a follower's batches, those before the refused one stay. The
producer states are updated after the write, and agree with the batches. Source: Kafka's `UnifiedLog.append`,
`LogAppendInfo`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.broker.storage import record_rewriting, validation
from anabranch.broker.storage.inspection import InspectedRecords
from anabranch.broker.storage.log_loader import produced_control_of, stored_control_of
from anabranch.broker.storage.producer_state import ProducerStates, Verification
from anabranch.broker.storage.replicated_run import ReplicatedRun, first_batch_around
from anabranch.broker.storage.validation import Origin
from anabranch.protocol.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    has_producer_id,
    read_header,
)
from anabranch.protocol.records.control import ControlRecord

if TYPE_CHECKING:
    from anabranch.broker.storage.log import PartitionLog

_LEADER_FIELDS: Final = struct.Struct(">qii")  # base offset, length, leader epoch: the fields before the magic byte


class AppendInfo(NamedTuple):
    """The result of an append. An empty append of a follower has `last_offset` = `first_offset` - 1."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    max_timestamp: int
    record_count: int
    size_bytes: int
    duplicate: bool = False
    """Whether the batch was in the log already, at these offsets; then nothing was appended."""


def find_duplicate(log: PartitionLog, records: Buffer) -> AppendInfo | None:
    """Return the result of the first append of these records, if they are among the producer's last batches."""
    if len(records) < HEADER_BYTES or records[MAGIC_POSITION] != MAGIC or not has_producer_id(records):
        return None
    header = read_header(records)
    batch = log.producers.find_duplicate(header)
    if batch is None:
        return None
    return AppendInfo(
        batch.first_offset,
        batch.last_offset,
        batch.timestamp_ms if log.settings.uses_log_append_time else NO_TIMESTAMP,
        log.log_start_offset,
        batch.timestamp_ms,
        header.record_count,
        header.size_bytes,
        duplicate=True,
    )


def append_as_leader(
    log: PartitionLog,
    records: Buffer,
    *,
    leader_epoch: int,
    now_ms: int,
    origin: Origin = "client",
    verification: Verification | None = None,
    verified_only: bool = False,
    found: InspectedRecords | None = None,
) -> AppendInfo:
    """Validate one batch, assign the next offsets to it and store it. Raises KafkaError.

    The caller looks for a duplicate first, with `find_duplicate`, and applies rule R5 between the two calls. A
    client's duplicate is refused here with OUT_OF_ORDER_SEQUENCE_NUMBER.

    `verified_only`: the first batch of a transaction needs the `verification` that its coordinator has confirmed.
    `found`: the result of an earlier inspection of the records.
    """
    settings = log.settings
    producers = log.producers
    if found is not None and found.instead is not None:
        records = found.instead
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < MAGIC:
        if found is not None and found.refusal is not None:
            raise found.refusal.error()
        records = record_rewriting.convert(records, settings)
        if not records:  # a message set without a complete message
            return AppendInfo(-1, -1, NO_TIMESTAMP, log.log_start_offset, NO_TIMESTAMP, 0, 0)
    header, max_timestamp = validation.check_produced(records, settings, now_ms, origin, found)
    size_bytes = header.size_bytes
    if size_bytes < len(records):
        records = records[:size_bytes]
    control: ControlRecord | None = None
    if header.is_control:
        control = produced_control_of(records, header)
        if control is not None and control.ends_transaction:
            producers.check_marker(header, control, newer=origin == "newer-coordinator")
    elif header.producer_id >= 0:
        producers.check(header, from_client=origin == "client", verification=verification, verified_only=verified_only)
    log_append_time_ms = NO_TIMESTAMP
    if (
        settings.uses_log_append_time
        or header.is_log_append_time
        or max_timestamp != header.max_timestamp
        or (settings.codec is not None and record_rewriting.changes_codec(header, settings))
    ):
        records = record_rewriting.rewrite_batch(records, header, max_timestamp, settings, now_ms)
        header = read_header(records)
        size_bytes = header.size_bytes
        log_append_time_ms = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
    first_offset = log.log_end_offset
    leader_fields = _LEADER_FIELDS.pack(first_offset, header.batch_length, leader_epoch)
    log.clock_ms = producers.now_ms = now_ms
    log.write(header, size_bytes, first_offset, leader_epoch, leader_fields, memoryview(records)[MAGIC_POSITION:])
    if header.producer_id >= 0:
        producers.note(header, first_offset, control)
    if log.durability.unflushed >= settings.flush_messages:
        log.durability.attempt(log.flush)
    return AppendInfo(
        first_offset,
        log.log_end_offset - 1,
        log_append_time_ms,
        log.log_start_offset,
        header.max_timestamp,
        header.record_count,
        size_bytes,
    )


def append_as_follower(log: PartitionLog, records: Buffer) -> AppendInfo:
    """Store batches with the leader's offsets and epochs; an incomplete last batch is ignored.

    An invalid batch raises KafkaError; the batches before it stay, since the leader has them too. Several batches
    are usually one write, with the same result as one by one.
    """
    start_offset = log.log_start_offset
    if start_offset == log.log_end_offset:
        around = first_batch_around(records, start_offset)
        if around is not None:  # the records before were deleted, and the log starts inside this batch
            log.truncate_fully_and_start_at(around.base_offset)
            info = append_as_follower(log, records)
            log.increment_log_start_offset(start_offset)
            return info._replace(log_start_offset=start_offset)
    run = ReplicatedRun(records, log.log_end_offset)
    if len(run.headers) < 2 or not _append_run(log, run):
        _append_each(log, run)
    if run.error is not None:
        raise run.error
    return AppendInfo(
        run.first_offset,
        run.next_offset - 1,
        NO_TIMESTAMP,
        start_offset,
        run.max_timestamp,
        run.record_count,
        run.size_bytes,
    )


def _append_run(log: PartitionLog, run: ReplicatedRun) -> bool:
    """Append a leader's batches with one write; return False, without effect, if they must be written one by one."""
    if not log.write_run(run):
        return False
    position = 0
    for header in run.headers:
        if header.producer_id >= 0:
            _note_replicated(log.producers, header, run.view, position)
        position += LOG_OVERHEAD_BYTES + header.batch_length
    log.notify_change()
    return True


def _append_each(log: PartitionLog, run: ReplicatedRun) -> None:
    position = 0
    for header in run.headers:
        size_bytes = LOG_OVERHEAD_BYTES + header.batch_length
        batch = run.view[position : position + size_bytes]
        log.write(header, size_bytes, header.base_offset, header.partition_leader_epoch, batch)
        if header.producer_id >= 0:
            _note_replicated(log.producers, header, run.view, position)
        if log.durability.unflushed >= log.settings.flush_messages:
            log.durability.attempt(log.flush)
        position += size_bytes


def _note_replicated(producers: ProducerStates, header: BatchHeader, records: memoryview, position: int) -> None:
    if header.is_control:
        batch = records[position : position + header.size_bytes]
        producers.note(header, header.base_offset, stored_control_of(batch, header))
    else:
        producers.append(header, header.base_offset)
