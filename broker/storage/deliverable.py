"""Finds the end of the deliverable records below a cut: a client commits the offset after its last record.

Transaction markers, aborted records or removed records may follow below the cut. A group may never commit beyond them,
so its gate waits only for the last record that `read_committed` consumers receive (R7, R9). `read_uncommitted`
consumers also receive aborted records, whose order does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.records.batch import read_header
from anabranch.protocol.records.record import iter_records

if TYPE_CHECKING:
    from anabranch.broker.storage.log import PartitionLog

BATCHES_MAX: Final = 10_000
"""The largest number of batches to search backwards; a batch beyond it counts as deliverable."""


def deliverable_end(log: PartitionLog, cut: int) -> int:
    """Return the offset after the last deliverable record below `cut`; the start of the log if there is none."""
    end = min(cut, log.log_end_offset)
    for _ in range(BATCHES_MAX):
        data = _batch_before(log, end) if end > log.log_start_offset else b""
        if not data:
            return log.log_start_offset
        header = read_header(data)
        aborted = header.is_transactional and any(
            one.producer_id == header.producer_id and one.first_offset <= header.base_offset
            for one in log.producers.aborted_transactions(header.base_offset, header.next_offset)
        )
        if not header.is_control and not aborted and header.record_count:
            whole = header.record_count > header.last_offset_delta
            last = header.last_offset if whole else max(record.offset for record in iter_records(data, headers_max=0))
            return max(last + 1, log.log_start_offset)
        end = header.base_offset
    return end


def _batch_before(log: PartitionLog, end: int) -> bytes:
    """Return the last batch that begins below an offset; empty if there is none."""
    for segment in reversed(list(log.segments)):
        if segment.base_offset >= end:
            continue
        position = segment.position_of(end - 1)
        found = next(segment.headers(position), None) if position < segment.file.size_bytes else None
        if found is not None and found[1].base_offset < end:
            return segment.read_batch(*found)
        # Compaction has removed that batch: find the last one that remains before it.
        last = None
        for place, header in segment.headers():
            if header.base_offset >= end:
                break
            last = place, header
        if last is not None:
            return segment.read_batch(*last)
    return b""
