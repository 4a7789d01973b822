"""Converts Fetch responses for versions before v10: message sets for those before v4, and no zstd.

Versions before v10 do not support zstd, so they cannot read a topic whose `compression.type` is zstd (KIP-110).
Versions before v4 get messages of format v0 (v0, v1) or v1 (v2, v3) if the topic allows down-conversion. A zstd batch
of a producer is refused; behind other messages, it ends the response (KIP-283). A response is not longer than its
batches were, but has the whole first batch. If only markers are left, it contains the start of an incomplete message,
as in Kafka, so that the consumer requests more bytes. For v5 and older, KAFKA_STORAGE_ERROR becomes
NOT_LEADER_OR_FOLLOWER.

Other requests are processed after each `STEP_BYTES`. A large batch is converted in a worker thread. Source:
`KafkaApis.handleFetchRequest`, `LazyDownConversionRecords`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Final

from anabranch.protocol.apis.fetch import PartitionData
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import HEADER_BYTES, iter_batches
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.records.conversion import down_convert
from anabranch.protocol.records.message_set import iter_headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anabranch.broker.dispatch.request_context import RequestContext
    from anabranch.broker.storage.log_settings import LogSettings
    from anabranch.protocol.apis.fetch import FetchableTopicResponse, FetchRequest
    from anabranch.protocol.records.batch import BatchHeader, Buffer

    Convert = Callable[[Buffer, int, BatchHeader, int, int], Awaitable[bytes]]

FIRST_VERSION_WITH_BATCHES: Final = 4
FIRST_VERSION_WITH_TIMESTAMPS: Final = 2
LAST_VERSION_WITHOUT_STORAGE_ERRORS: Final = 5
STEP_BYTES: Final = 128 * 1024
INCOMPLETE: Final = struct.pack(">qi", -1, HEADER_BYTES)
"""The offset and size of a message, without its bytes."""

log: Final = logging.getLogger(__name__)


async def downgrade(ctx: RequestContext, request: FetchRequest, answer: list[FetchableTopicResponse]) -> None:
    """Convert the rows of a response to the request's version."""
    offsets = {
        (topic.topic, partition.partition): partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }
    for topic in answer:
        for place, row in enumerate(topic.partitions):
            try:
                check(ctx, request.replica_id, settings_of(ctx, topic.topic, row.partition_index))
                if ctx.version < FIRST_VERSION_WITH_BATCHES:
                    magic = 1 if ctx.version >= FIRST_VERSION_WITH_TIMESTAMPS else 0
                    first_offset = offsets[topic.topic, row.partition_index]
                    convert = ctx.services.replicas.inspector.down_converted
                    row.records = await convert_batches(row.records or b"", magic, first_offset, convert)
            except KafkaError as error:
                topic.partitions[place] = PartitionData(
                    partition_index=row.partition_index,
                    error_code=error.code,
                    high_watermark=-1,
                    aborted_transactions=[],
                    # Kafka sends null in old versions, too; librdkafka cannot parse it, and its user sees no error.
                    records=None if ctx.version >= FIRST_VERSION_WITH_BATCHES else b"",
                )
            if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR and ctx.version <= LAST_VERSION_WITHOUT_STORAGE_ERRORS:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


def settings_of(ctx: RequestContext, topic: str, index: int) -> LogSettings | None:
    """Return the settings of a partition's log; None if this broker does not host it."""
    try:
        return ctx.services.replicas.partition(topic, index).log.settings
    except KafkaError:
        return None


def check(ctx: RequestContext, replica_id: int, settings: LogSettings | None) -> None:
    """Raise KafkaError if this version cannot read the topic."""
    if settings is None or not ctx.services.profile.converts_messages:
        return
    if settings.codec is Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "the topic's batches are zstd, which needs Fetch v10")
    if ctx.version < FIRST_VERSION_WITH_BATCHES and replica_id < 0 and not settings.message_downconversion_enable:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the topic's batches are not converted: they need Fetch v4")


async def at_once(records: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int) -> bytes:
    """Convert a batch without a worker thread; see `down_convert`."""
    return down_convert(records, position, header, magic, first_offset)


async def convert_batches(records: Buffer, magic: int, first_offset: int, convert: Convert = at_once) -> bytes:
    """Return batches as message sets. Raises KafkaError if the first one cannot be converted."""
    parts: list[bytes] = []
    size = step = 0
    for position, header in iter_batches(records):
        try:
            if header.codec == Compression.ZSTD and not header.is_control:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "message sets do not support zstd")
            part = await convert(records, position, header, magic, first_offset)
        except KafkaError:
            if parts:
                break
            raise
        except DecodeError as reason:
            log.error("the batch at offset %d cannot be read: %s", header.base_offset, reason)
            if parts:
                break
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason)) from None
        if parts and size + len(part) > len(records):
            parts.append(whole_messages(part, len(records) - size))
            break
        if part:
            parts.append(part)
        size += len(part)
        step += header.size_bytes + len(part)
        if step >= STEP_BYTES:
            step = 0
            await asyncio.sleep(0)
    if not parts and len(records):
        return INCOMPLETE
    return b"".join(parts)


def whole_messages(messages: bytes, size_bytes: int) -> bytes:
    """Return the first messages, as many as fit completely."""
    end = 0
    for position, header in iter_headers(messages[:size_bytes]):
        end = position + header.size_bytes
    return messages[:end]
