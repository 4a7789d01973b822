"""Reads and searches the records of partitions from their leaders, as a client of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from anabranch.clients.consumer.offset_lookup import EARLIEST, LATEST, READ_UNCOMMITTED, find_offsets
from anabranch.clients.metadata import NO_LEADER
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.record_search import FoundRecordsRow, ReadableLog, search
from anabranch.control.topic_routes import READ_BYTES, RecordRow, RecordsRow, read_rows
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.metadata import Topic
    from anabranch.protocol.apis.fetch import FetchResponse


async def topic_named(admin: Admin, name: str) -> Topic:
    """Describe one topic. Raises UnknownNode."""
    try:
        return (await admin.describe_topics([name]))[name]
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise UnknownNode(f"there is no topic {name}") from None


async def read_partition(admin: Admin, topic: Topic, index: int, first: int | None, limit: int) -> RecordsRow:
    """Read records up to the high watermark: from an offset, or the last ones. Raises UnknownNode."""
    if index not in topic.partitions:
        raise UnknownNode(f"{topic.name} has no partition {index}")
    place = TopicPartition(topic.name, index)
    start, end = [await _bound(admin, place, at) for at in (EARLIEST, LATEST)]
    first_offset = max(end - limit, 0) if first is None else first
    offset = max(first_offset, start)
    rows: list[RecordRow] = []
    while offset < end and len(rows) < limit:
        content = await _fetch(admin, topic, index, offset)
        if not content:
            break
        found, offset = await read_rows(content, first_offset, end, limit - len(rows))
        rows += found
    return {"start": start, "end": end, "records": rows}


async def search_topic(admin: Admin, topic: Topic, query: Mapping[str, str]) -> FoundRecordsRow:
    """Find records of a topic, newest first; see `record_search`."""

    async def open_log(index: int) -> ReadableLog:
        if index not in topic.partitions:
            raise UnknownNode(f"{topic.name} has no partition {index}")
        if topic.partitions[index].leader == NO_LEADER:
            raise ActionRefused(f"{topic.name}-{index} has no leader now")
        place = TopicPartition(topic.name, index)
        return FetchedLog(admin, topic, index, *[await _bound(admin, place, at) for at in (EARLIEST, LATEST)])

    return await search(query, topic.partitions, open_log, now=datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class FetchedLog:
    """A log that is read with Fetch requests."""

    admin: Admin
    topic: Topic
    index: int
    start: int
    end: int

    async def read(self, offset: int) -> bytes:
        """The batches from an offset on; empty if they were deleted meanwhile."""
        return await _fetch(self.admin, self.topic, self.index, offset)


async def _bound(admin: Admin, place: TopicPartition, at: int) -> int:
    found = (await find_offsets(admin.network, {place: at}, READ_UNCOMMITTED))[place]
    return 0 if found is None else found.offset


async def _fetch(admin: Admin, topic: Topic, index: int, offset: int) -> bytes:
    """The batches from an offset on; empty if the log has changed meanwhile, and no longer has it."""
    fetch_partition = FetchPartition(
        partition=index, fetch_offset=offset, log_start_offset=-1, partition_max_bytes=READ_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[fetch_partition])],
    )

    async def once() -> bytes:
        leader = await admin.network.leader_of(TopicPartition(topic.name, index))
        response: FetchResponse = await admin.network.call(leader, request)
        rows = [row for one in response.responses for row in one.partitions]
        code = ErrorCode(rows[0].error_code if rows else response.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return b""
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{topic.name}-{index}")
        return bytes(rows[0].records or b"")

    return await admin.network.retry(once)
