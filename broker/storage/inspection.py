"""Whether a client's records are what their batch says, and keep the rules of the topic.

A batch that is let in is one that every consumer can read to its end (`protocol.records.walk`). The look is taken in
steps, between which the node can do something else; a batch in which a record breaks a rule is gone through once more,
to say which. Codes and their order are Kafka's (`LogValidator`); where it fails rather than refuses (records that do
not decompress, a length of more than five bytes), its code is UNKNOWN_SERVER_ERROR.

Two rules are ours. Offset deltas are 0, 1, 2 and so on: Kafka does not look at them, or fails. And what records are
uncompressed is limited (`LogSettings.decompressed_bytes_max`): MESSAGE_TOO_LARGE, upon which producers make smaller
batches.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

from anabranch.broker.storage.log_settings import INT64_MAX, LogSettings
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, Buffer
from anabranch.protocol.records.compression import Compression, TooMuchError, decompress_view
from anabranch.protocol.records.walk import Outline, RecordLengthError, WalkBudget, Walked, iter_outlines, iter_walk

RECORD_ERRORS_MAX: Final = 1000
"""How many records a refusal names; a batch may have a million."""


class RecordsRefused(KafkaError):
    """Some records of a batch break a rule; `record_errors` says which (Produce v8+), the first ones of many."""

    def __init__(self, code: ErrorCode, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, f"record {record_errors[0][0]}: {record_errors[0][1]}")
        self.record_errors = record_errors


class Refusal(NamedTuple):
    """An error without the stack it came through, which would keep megabytes alive for as long as the error."""

    code: ErrorCode
    message: str
    record_errors: list[tuple[int, str]] | None

    @classmethod
    def of(cls, error: KafkaError) -> Refusal:
        """The refusal that an error stands for."""
        return cls(error.code, error.message, error.record_errors if isinstance(error, RecordsRefused) else None)

    def error(self) -> KafkaError:
        """To be raised."""
        if self.record_errors is not None:
            return RecordsRefused(self.code, self.record_errors)
        return KafkaError(self.code, self.message)


class InspectedRecords(NamedTuple):
    """What a look at a batch has found, for an append that need not look again."""

    max_timestamp: int = NO_TIMESTAMP
    """The timestamp of the latest record, whatever the header says."""
    refusal: Refusal | None = None
    """Why the records cannot be taken."""
    instead: Buffer | None = None
    """The batch that is to be stored: converted from a message set, or compressed as the topic asks."""


def content_of(records: Buffer, header: BatchHeader, settings: LogSettings) -> Buffer:
    """The records of a batch, uncompressed. Raises KafkaError."""
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


def inspected(
    content: Buffer, header: BatchHeader, settings: LogSettings, now_ms: int, budget: WalkBudget | None = None
) -> Generator[None, None, int]:
    """Hold the records to their header and to the rules, in steps; the timestamp of the latest. Raises KafkaError."""
    try:
        walked = yield from iter_walk(content, header.record_count, budget)
    except RecordLengthError as length:
        code = ErrorCode.INVALID_RECORD if header.codec else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"the records cannot be read: {length}") from None
    except DecodeError as reason:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the records cannot be read: {reason}") from None
    rules = _Rules(header, settings, now_ms)
    if not rules.are_kept(walked):
        yield from _refused(content, header, rules)
    if header.is_log_append_time:
        return header.max_timestamp
    return max(header.base_timestamp + walked.max_timestamp_delta, NO_TIMESTAMP)


def _refused(content: Buffer, header: BatchHeader, rules: _Rules) -> Generator[None, None, None]:
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
        self._stamps_time = settings.stamps_time
        self._earliest_ms = now_ms - settings.message_timestamp_before_max_ms
        self._latest_ms = now_ms + settings.message_timestamp_after_max_ms

    def are_kept(self, walked: Walked) -> bool:
        """Whether no record can break one."""
        header = self._header
        if not walked.in_sequence or header.is_log_append_time or (self._needs_keys and walked.has_null_key):
            return False
        earliest_ms = header.base_timestamp + walked.min_timestamp_delta
        latest_ms = header.base_timestamp + walked.max_timestamp_delta
        if earliest_ms < -INT64_MAX or latest_ms > INT64_MAX:
            return False
        return self._stamps_time or (earliest_ms >= self._earliest_ms and latest_ms <= self._latest_ms)

    def objection(self, index: int, record: Outline) -> tuple[str, bool] | None:
        """Why a record breaks one, and whether that is for its timestamp; of several reasons the one Kafka gives."""
        header = self._header
        timestamp_ms = header.base_timestamp + record.timestamp_delta
        if record.offset_delta != index:
            return f"the offset delta is {record.offset_delta} instead of {index}", False
        if self._needs_keys and not record.has_key:
            return "a compacted topic cannot take a record without a key", False
        if not -INT64_MAX - 1 <= timestamp_ms <= INT64_MAX:
            return "a timestamp of more than 64 bits", True
        if header.is_log_append_time:
            timestamp_ms = header.max_timestamp
            if self._stamps_time or timestamp_ms == NO_TIMESTAMP:
                # Kafka has looked only here since 3.6: where the time itself is judged, the claim is just struck out.
                return "log append time is the broker's to set", True
        if self._stamps_time or timestamp_ms == NO_TIMESTAMP or self._earliest_ms <= timestamp_ms <= self._latest_ms:
            return None
        return f"timestamp {timestamp_ms} is not between {self._earliest_ms} and {self._latest_ms}", True
