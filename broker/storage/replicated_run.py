"""Checks the batches of a leader's Fetch response before a follower appends them.

A follower stores the valid batches before an invalid one, since the leader has them too. An incomplete batch at the end
is ignored: a response may end inside a batch.
"""

from __future__ import annotations

from anabranch.broker.storage.validation import check_replicated
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import LOG_OVERHEAD_BYTES, NO_TIMESTAMP, BatchHeader, Buffer, iter_batches


class ReplicatedRun:
    """The batches at the beginning of `records` that are valid behind `log_end_offset`."""

    __slots__ = (
        "error", "first_offset", "headers", "latest_epoch", "max_timestamp", "next_offset", "record_count",
        "size_bytes", "view",
    )  # fmt: skip

    def __init__(self, records: Buffer, log_end_offset: int) -> None:
        self.view = memoryview(records)
        self.headers: list[BatchHeader] = []
        self.error: KafkaError | None = None
        """Why the batch after the last valid one is invalid."""
        self.next_offset = log_end_offset
        self.record_count = 0
        self.size_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.latest_epoch = -1
        try:
            for position, header in iter_batches(records):
                check_replicated(records, position, header, self.next_offset)
                self.headers.append(header)
                self.next_offset = header.base_offset + header.last_offset_delta + 1
                self.record_count += header.record_count
                self.size_bytes += LOG_OVERHEAD_BYTES + header.batch_length
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp = header.max_timestamp
                if header.partition_leader_epoch > self.latest_epoch:
                    self.latest_epoch = header.partition_leader_epoch
        except DecodeError as reason:
            self.error = KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason))
        except KafkaError as error:
            self.error = error
        self.first_offset = self.headers[0].base_offset if self.headers else log_end_offset


def first_batch_around(records: Buffer, offset: int) -> BatchHeader | None:
    """Return the first batch if it begins before an offset and ends at or after it. Raises KafkaError."""
    try:
        _, first = next(iter_batches(records), (0, None))
    except DecodeError:
        return None
    if first is None or not first.base_offset < offset <= first.last_offset:
        return None
    check_replicated(records, 0, first, first.base_offset)
    return first
