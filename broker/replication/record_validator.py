"""Validates large or compressed batches before the append, without blocking the event loop.

An append is one synchronous step, which validates ordinary batches itself. Batches are validated here if they have more
records than one step of a walk, more than `LOOKED_AT_ONCE_BYTES` (a header takes two), or compressed records. Large
decompression and recompression use a worker thread, one batch of the node at a time, which also bounds memory. The walk
yields to the loop after each step. The connection's next request waits meanwhile, so order is kept. The append uses the
results as if it had validated the batch itself.

Long message sets are converted in the same thread, since no stored format has them. Compressed data that is no batch
(client metrics) is decompressed there, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anabranch.broker.storage import record_rewriting
from anabranch.broker.storage.inspection import InspectedRecords, Refusal, content_of, inspect_records
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.errors import DecodeError, KafkaError
from anabranch.protocol.records.batch import (
    CODEC_MASK,
    FLAGS_POSITION,
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    MESSAGE_FLAGS_POSITION,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
    record_count_of,
)
from anabranch.protocol.records.compression import Compression, content_max, decompress
from anabranch.protocol.records.conversion import down_convert
from anabranch.protocol.records.record import RecordReader
from anabranch.protocol.records.walk import STEP_RECORDS, WalkBudget

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.storage.log_settings import LogSettings
    from anabranch.protocol.apis.produce import ProduceRequest

Result = TypeVar("Result")
ValidationResults = dict[int, InspectedRecords]
"""Results by the id of a partition's records in the request."""

INLINE_BYTES: Final = 1 << 20
"""The most bytes decompressed inline: some two milliseconds of work."""
INLINE_COMPRESSED_BYTES: Final = 1 << 16
"""The most bytes compressed inline; gzip takes ten times as long as the other codecs."""
LOOKED_AT_ONCE_BYTES: Final = 1 << 15
"""The most bytes of records that the append itself validates: they may contain 16,000 headers."""
UNPACKED_BYTES_PER_RECORD: Final = 256
"""The bytes that are decompressed in the time that a walk takes for a record."""
INLINE_MESSAGE_SET_BYTES: Final = 1 << 15
"""The most bytes of a message set that is converted inline: it may contain a thousand messages."""

MESSAGES_AT_ONCE: Final = 1000
"""The records converted to messages in one step: some three milliseconds of work."""


def needs_yielding(request: ProduceRequest) -> bool:
    """Return whether the records of a request have to be validated before the append."""
    count = size_bytes = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < HEADER_BYTES:
                continue
            if records[MAGIC_POSITION] < MAGIC:
                if len(records) > INLINE_MESSAGE_SET_BYTES or _is_wrapper(records):
                    return True
            elif records[FLAGS_POSITION] & CODEC_MASK:
                return True
            else:
                count += max(record_count_of(records), 0)
                size_bytes += len(records)
    return count > STEP_RECORDS or size_bytes > LOOKED_AT_ONCE_BYTES


class RecordValidator:
    """The record validator of a node."""

    def __init__(self, replica: Callable[[str, int], Partition | None], clock_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._clock_ms = clock_ms
        self._turn = asyncio.Lock()
        self._worker: ThreadPoolExecutor | None = None
        self._budget = WalkBudget()

    def close(self) -> None:
        """Shut the thread down after its present work."""
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)

    @property
    def busy(self) -> bool:
        """Return whether the thread, or a walk over its output, is running."""
        return self._turn.locked()

    async def validate(self, request: ProduceRequest, *, message_sets: bool) -> ValidationResults:
        """Validate each batch that this broker may append; `message_sets`: whether they are allowed."""
        found: ValidationResults = {}
        turns = YieldBudget()
        for topic in request.topic_data:
            for data in topic.partition_data:
                if turns.is_spent():  # a batch of one record takes as long as ten records of another
                    await asyncio.sleep(0)
                partition = self._replica(topic.name, data.index)
                records = data.records
                if partition is None or not partition.is_leader or records is None or len(records) < HEADER_BYTES:
                    continue
                settings = partition.log.settings
                try:
                    if records[MAGIC_POSITION] == MAGIC:
                        finding = await self._batch(records, settings)
                    elif records[MAGIC_POSITION] < MAGIC and message_sets:
                        finding = await self._message_set(records, settings)
                    else:
                        continue
                except KafkaError as error:
                    finding = InspectedRecords(refusal=Refusal.of(error))
                if finding is not None:
                    found[id(data)] = finding
        return found

    @contextlib.asynccontextmanager
    async def unpack(self, records: Buffer, header: BatchHeader, settings: LogSettings) -> AsyncIterator[Buffer]:
        """Yield the uncompressed records of a batch, valid within the block. Raises KafkaError."""
        if _unpacks_at_once(records, header):
            yield content_of(records, header, settings)
            return
        async with self._turn:
            yield await self._in_thread(content_of, records, header, settings)

    async def decompress_content(self, codec: int, content: Buffer, limit_bytes: int) -> bytes:
        """Decompress data that is no batch. Raises DecodeError."""
        if len(content) <= INLINE_COMPRESSED_BYTES and content_max(codec, content) <= INLINE_BYTES:
            return decompress(codec, content, limit_bytes)
        async with self._turn:
            return await self._in_thread(decompress, codec, content, limit_bytes)

    @contextlib.asynccontextmanager
    async def reader(self, batch: Buffer, header: BatchHeader) -> AsyncIterator[RecordReader]:
        """Yield a reader of a stored batch without record headers, valid within the block. Raises DecodeError.

        Only one large batch of the node is decompressed at a time.
        """
        if _unpacks_at_once(batch, header):
            yield RecordReader(batch, headers_max=0)
            return
        async with self._turn:
            yield await self._in_thread(partial(RecordReader, batch, headers_max=0))

    async def down_converted(
        self, records: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int
    ) -> bytes:
        """Convert a stored batch to messages: see `down_convert`. Raises DecodeError."""
        batch = memoryview(records)[position : position + header.size_bytes]
        if header.record_count <= MESSAGES_AT_ONCE and _unpacks_at_once(batch, header):
            return down_convert(batch, 0, header, magic, first_offset)
        async with self._turn:
            return await self._in_thread(down_convert, batch, 0, header, magic, first_offset)

    async def convert(self, records: Buffer, settings: LogSettings) -> Buffer:
        """Convert a message set to a batch; empty if no message is complete. Raises KafkaError."""
        if len(records) <= INLINE_MESSAGE_SET_BYTES and not _is_wrapper(records):
            return record_rewriting.convert(records, settings)
        async with self._turn:
            return await self._in_thread(record_rewriting.convert, records, settings)

    async def _message_set(self, records: Buffer, settings: LogSettings) -> InspectedRecords | None:
        if len(records) <= INLINE_MESSAGE_SET_BYTES and not _is_wrapper(records):
            return None
        async with self._turn:
            converted = await self._in_thread(record_rewriting.convert, records, settings)
        if not converted:
            return None
        finding = await self._batch(converted, settings)
        return InspectedRecords(instead=converted) if finding is None else finding._replace(instead=converted)

    async def _batch(self, records: Buffer, settings: LogSettings) -> InspectedRecords | None:
        """Validate a batch; None if the append will refuse it for its header. Raises KafkaError."""
        header = read_header(records)
        if not is_plausible(records, header, settings):
            return None
        if _unpacks_at_once(records, header):
            content = content_of(records, header, settings)
            if len(content) <= INLINE_COMPRESSED_BYTES or not record_rewriting.changes_codec(header, settings):
                return InspectedRecords(await self._walk(content, header, settings))
        async with self._turn:
            content = await self._in_thread(content_of, records, header, settings)
            latest = await self._walk(content, header, settings)
            del content
            if not record_rewriting.changes_codec(header, settings):
                return InspectedRecords(latest)
            return InspectedRecords(
                latest, instead=await self._in_thread(record_rewriting.recompress_batch, records, header, settings)
            )

    async def _in_thread(self, function: Callable[..., Result], *args: Any) -> Result:
        if self._worker is None:
            # One thread, because the C library keeps the memory that each thread has ever allocated.
            self._worker = ThreadPoolExecutor(1, "inspector")
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *args)

    async def _walk(self, content: Buffer, header: BatchHeader, settings: LogSettings) -> int:
        # Many short batches take as long as one with many records, so they share the budget.
        if header.codec and self._budget.spend(len(content) // UNPACKED_BYTES_PER_RECORD):
            await asyncio.sleep(0)
        steps = inspect_records(content, header, settings, self._clock_ms(), self._budget)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                latest: int = end.value
                return latest
            await asyncio.sleep(0)


def is_plausible(records: Buffer, header: BatchHeader, settings: LogSettings) -> bool:
    """Return whether the records need validation; not if the append will refuse the batch for its header."""
    return (
        HEADER_BYTES <= header.size_bytes <= min(len(records), settings.max_message_bytes)
        and header.codec <= max(Compression)
        and header.record_count > 0
        and check_crc(records, 0, header)
    )


def _is_wrapper(records: Buffer) -> bool:
    return bool(records[MESSAGE_FLAGS_POSITION] & CODEC_MASK)


def _unpacks_at_once(records: Buffer, header: BatchHeader) -> bool:
    blob = memoryview(records)[HEADER_BYTES : header.size_bytes]
    try:
        return content_max(header.codec, blob) <= INLINE_BYTES
    except DecodeError:
        return True  # the batch is not decompressed at all
