"""Where what can be delivered of a log's beginning ends: a client commits behind the last record that it was handed.

Below a cut there may be more: the markers of transactions, aborted records, what compaction has removed. A group may
stand in front of those for ever, so a gate that waits for it waits for the last record that consumers of committed
data are handed (R7, R9). Aborted records, which others are handed too, have no order to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.records.batch import read_header
from anabranch.protocol.records.record import iter_records

if TYPE_CHECKING:
    from anabranch.broker.storage.log import PartitionLog

BATCHES_MAX: Final = 10_000
"""How many batches without anything to deliver are passed, walking back. More are taken for deliverable."""


def deliverable_end(log: PartitionLog, cut: int) -> int:
    """The offset behind the last record below `cut` that can be delivered; the start of the log if there is none."""
    end = min(cut, log.log_end_offset)
    for _ in range(BATCHES_MAX):
        data = _batch_before(log, end) if end > log.log_start_offset else b""
        if not data:
            return log.log_start_offset
        header = read_header(data)
        aborted = header.is_transactional and any(
            one.producer_id == header.producer_id and one.first_offset <= header.base_offset
            for one in log.aborted_transactions(header.base_offset, header.next_offset)
        )
        if not header.is_control and not aborted and header.record_count:
            whole = header.record_count > header.last_offset_delta
            last = header.last_offset if whole else max(record.offset for record in iter_records(data, headers=False))
            return max(last + 1, log.log_start_offset)
        end = header.base_offset
    return end


def _batch_before(log: PartitionLog, end: int) -> bytes:
    """The last batch that begins below an offset; nothing if there is none."""
    for segment in reversed(list(log.segments)):
        if segment.base_offset >= end:
            continue
        position = segment.position_of(end - 1)
        found = next(segment.headers(position), None) if position < segment.file.size_bytes else None
        if found is not None and found[1].base_offset < end:
            return segment.read_batch(*found)
        # Compaction has removed what stood there: the last batch that is left lies further up.
        last = None
        for place, header in segment.headers():
            if header.base_offset >= end:
                break
            last = place, header
        if last is not None:
            return segment.read_batch(*last)
    return b""
