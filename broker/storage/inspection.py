"""Inspects a client's records: they must match their batch header and the rules of the topic.

Every consumer can read an accepted batch to its end (`protocol.records.walk`). Inspection runs in steps, between which
the event loop runs other tasks. A batch with an invalid record is parsed a second time to list the invalid records.
Error codes and their order are Kafka's (`LogValidator`). Where Kafka fails with an exception (records that do not
decompress, a length of more than five bytes), its code is UNKNOWN_SERVER_ERROR.

Two rules are not Kafka's. Offset deltas must be 0, 1, 2 and so on: Kafka ignores them, or fails. The uncompressed size
of the records is limited (`LogSettings.decompressed_bytes_max`): the error is MESSAGE_TOO_LARGE, after which producers
split batches.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

from anabranch.broker.storage.log_settings import INT64_MAX, LogSettings
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, Buffer
from anabranch.protocol.records.compression import Compression, TooMuchError, decompress_view
from anabranch.protocol.records.walk import (
    Outline,
    RecordLengthError,
    WalkBudget,
    Walked,
    iter_outlines,
    iter_walk,
    walk_few,
)

RECORD_ERRORS_MAX: Final = 1000
"""The largest number of records that one error lists; a batch may have a million."""


class RecordsRefused(KafkaError):
    """Raised for a batch with invalid records; `record_errors` lists the first ones (Produce v8+)."""

    def __init__(self, code: ErrorCode, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, f"record {record_errors[0][0]}: {record_errors[0][1]}")
        self.record_errors = record_errors


class Refusal(NamedTuple):
    """An error without its traceback, which would keep megabytes of records in memory."""

    code: ErrorCode
    message: str
    record_errors: list[tuple[int, str]] | None

    @classmethod
    def of(cls, error: KafkaError) -> Refusal:
        """Return the refusal with the content of an error."""
        return cls(error.code, error.message, error.record_errors if isinstance(error, RecordsRefused) else None)

    def error(self) -> KafkaError:
        """Return the error to raise."""
        if self.record_errors is not None:
            return RecordsRefused(self.code, self.record_errors)
        return KafkaError(self.code, self.message)


class InspectedRecords(NamedTuple):
    """The result of inspecting a batch, for an append that need not inspect it again."""

    max_timestamp: int = NO_TIMESTAMP
    """The latest timestamp of the records; the header may have another one."""
    refusal: Refusal | None = None
    """Why the records are refused."""
    instead: Buffer | None = None
    """The batch to store instead: converted from a message set, or recompressed with the topic's codec."""


def content_of(records: Buffer, header: BatchHeader, settings: LogSettings) -> Buffer:
    """Return the uncompressed records of a batch. Raises KafkaError."""
    blob = memoryview(records)[HEADER_BYTES : header.size_bytes]
    if header.codec == Compression.NONE:
        return blob
    try:
        return decompress_view(header.codec, blob, settings.decompressed_bytes_max)
    except TooMuchError:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the records are more than {settings.decompressed_bytes_max} bytes uncompressed: send smaller batches",
        ) from None
    except DecodeError as reason:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(reason)) from None


def inspect_few(content: Buffer, header: BatchHeader, settings: LogSettings, now_ms: int) -> int | None:
    """Check a small batch of common records in one step; return the latest timestamp.

    None means that `inspect_records` has to decide.
    """
    walked = walk_few(content, header.record_count)
    if walked is None or not _Rules(header, settings, now_ms).are_kept(walked):
        return None
    return max(header.base_timestamp + walked.max_timestamp_delta, NO_TIMESTAMP)


def inspect_records(
    content: Buffer, header: BatchHeader, settings: LogSettings, now_ms: int, budget: WalkBudget | None = None
) -> Generator[None, None, int]:
    """Check records against their header and the rules, in steps; return the latest timestamp. Raises KafkaError."""
    try:
        walked = yield from iter_walk(content, header.record_count, budget)
    except RecordLengthError as length:
        code = ErrorCode.INVALID_RECORD if header.codec else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"the records cannot be read: {length}") from None
    except DecodeError as reason:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the records cannot be read: {reason}") from None
    rules = _Rules(header, settings, now_ms)
    if not rules.are_kept(walked):
        yield from _refuse(content, header, rules)
    if header.is_log_append_time:
        return header.max_timestamp
    return max(header.base_timestamp + walked.max_timestamp_delta, NO_TIMESTAMP)


def _refuse(content: Buffer, header: BatchHeader, rules: _Rules) -> Generator[None, None, None]:
    code = ErrorCode.INVALID_RECORD
    errors: list[tuple[int, str]] = []
    for index, outline in enumerate(iter_outlines(content, header.record_count)):
        objection = rules.objection(index, outline)
        if objection is not None:
            reason, is_of_time = objection
            errors.append((index, reason))
            if is_of_time:
                code = ErrorCode.INVALID_TIMESTAMP
            if len(errors) == RECORD_ERRORS_MAX:
                break
        if index % 1024 == 1023:
            yield
    if errors:
        raise RecordsRefused(code, errors)


class _Rules:
    """The topic's rules for each record of a batch."""

    def __init__(self, header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
        self._header = header
        self._needs_keys = settings.compacts
        self._uses_log_append_time = settings.uses_log_append_time
        self._earliest_ms = now_ms - settings.message_timestamp_before_max_ms
        self._latest_ms = now_ms + settings.message_timestamp_after_max_ms

    def are_kept(self, walked: Walked) -> bool:
        """Check whether the summary of the records proves that all of them are valid."""
        header = self._header
        if not walked.in_sequence or header.is_log_append_time or (self._needs_keys and walked.has_null_key):
            return False
        earliest_ms = header.base_timestamp + walked.min_timestamp_delta
        latest_ms = header.base_timestamp + walked.max_timestamp_delta
        if earliest_ms < -INT64_MAX or latest_ms > INT64_MAX:
            return False
        return self._uses_log_append_time or (earliest_ms >= self._earliest_ms and latest_ms <= self._latest_ms)

    def objection(self, index: int, record: Outline) -> tuple[str, bool] | None:
        """Return why a record is invalid, and whether its timestamp is the reason; of several reasons, Kafka's."""
        header = self._header
        timestamp_ms = header.base_timestamp + record.timestamp_delta
        if record.offset_delta != index:
            return f"the offset delta is {record.offset_delta} instead of {index}", False
        if self._needs_keys and not record.has_key:
            return "records of a compacted topic need a key", False
        if not -INT64_MAX - 1 <= timestamp_ms <= INT64_MAX:
            return "a timestamp of more than 64 bits", True
        if header.is_log_append_time:
            timestamp_ms = header.max_timestamp
            if self._uses_log_append_time or timestamp_ms == NO_TIMESTAMP:
                # Since 3.6 Kafka refuses the flag only in these cases; otherwise it clears it.
                return "log append time can only be set by the broker", True
        if (
            self._uses_log_append_time
            or timestamp_ms == NO_TIMESTAMP
            or self._earliest_ms <= timestamp_ms <= self._latest_ms
        ):
            return None
        return f"timestamp {timestamp_ms} is not between {self._earliest_ms} and {self._latest_ms}", True
