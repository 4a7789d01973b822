"""The route that searches the records of a topic, newest first, in all partitions or one.

A request examines a limited number of bytes. Its response says whether it examined all, and where the next one goes on.
The records come from the logs of this process, or from the leaders of a cluster of processes (`front_records`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, NotRequired, Protocol, TypedDict

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.controlled_cluster import ControlledCluster, time_of_day
from anabranch.control.route import ControlRequest, Route
from anabranch.control.topic_routes import (
    DIGITS_MAX,
    HEADERS_MAX,
    ONE,
    RECORDS_MAX,
    RecordRow,
    leader_of,
    number_of,
    record_row,
    topic_of,
)
from anabranch.inspect.positions import parse_position
from anabranch.inspect.record_filter import RecordFilter
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from anabranch.broker.replication.partition import Partition
    from anabranch.protocol.records.batch import BatchHeader
    from anabranch.protocol.records.record import Record

SCAN_BYTES_MAX: Final = 16 << 20
ROWS_BYTES_MAX: Final = 4 << 20
READ_BYTES: Final = 64 << 10
STEP: Final = 200
"""The number of offsets that are examined at once in each partition."""


SearchQuery = TypedDict(
    "SearchQuery",
    {
        "key": NotRequired[Annotated[str, "a part of the key"]],
        "value": NotRequired[Annotated[str, "a part of the value"]],
        "header": NotRequired[Annotated[str, "a header's name, or name=part of its value"]],
        "offset": NotRequired[Annotated[int, "the offset"]],
        "from": NotRequired[Annotated[str, "the earliest time: 2026-11-23T10:00, or 15m, 2h, 1d ago"]],
        "to": NotRequired[Annotated[str, "the latest time"]],
        "partition": NotRequired[Annotated[int, "the partition; all if left out"]],
        "limit": NotRequired[Annotated[int, f"how many; 50 if left out, at most {RECORDS_MAX}"]],
        "before": NotRequired[Annotated[str, "where to go on, as the last response had it"]],
    },
)
"""The conditions of a search. One is named `from`, which Python does not allow in a class."""


class FoundRecordRow(RecordRow):
    """A found record, with its partition."""

    partition: int


class FoundRecordsRow(TypedDict):
    """The result of a search."""

    records: list[FoundRecordRow]
    scanned_bytes: Annotated[int, "the bytes that were examined"]
    before: Annotated[str, "where the search goes on; empty if everything was examined"]
    without_leader: Annotated[list[int], "the partitions without a leader, which were not searched"]


class ReadableLog(Protocol):
    """The log of a partition, up to the high watermark that it had at first."""

    @property
    def start(self) -> int:
        """The log start offset."""

    @property
    def end(self) -> int:
        """The high watermark."""

    async def read(self, offset: int) -> bytes:
        """The batches from an offset on; empty if there are none."""


class LeaderLog:
    """The log of a leader in this process."""

    def __init__(self, leader: Partition) -> None:
        self._log = leader.log
        self.end = leader.high_watermark

    @property
    def start(self) -> int:
        """The log start offset."""
        return self._log.log_start_offset

    async def read(self, offset: int) -> bytes:
        """The batches from an offset on."""
        content = bytes(self._log.read(offset, READ_BYTES, limit_offset=self.end, min_one_batch=True))
        await asyncio.sleep(0)
        return content


class PartitionScan:
    """Examines one partition backwards from an offset.

    Args:
        log: The partition's log.
        before: The offset to begin at; this one is not examined. None: the high watermark.
        conditions: The conditions.
        limit: The maximum number of records that are kept: the newest ones.
    """

    def __init__(self, log: ReadableLog, before: int | None, conditions: RecordFilter, limit: int) -> None:
        self._log = log
        self.before = log.end if before is None else min(before, log.end)
        if conditions.offset is not None:
            self.before = min(self.before, conditions.offset + 1)
        self._conditions = conditions
        self._limit = limit
        self.found: deque[tuple[BatchHeader, Record]] = deque()
        """The found records, oldest first."""
        self.full = False
        self.found_bytes = 0

    @property
    def over(self) -> bool:
        """Whether no record is left."""
        return self.full or self.before <= self._log.start or self._wanted_passed

    @property
    def _wanted_passed(self) -> bool:
        return self._conditions.offset is not None and self.before <= self._conditions.offset

    async def step(self) -> int:
        """Examine the next older records; return the number of bytes that were read."""
        offset, end = max(self.before - STEP, self._log.start), self.before
        lowest, size_bytes = offset, 0
        found: list[tuple[BatchHeader, Record]] = []
        while offset < end:
            content = await self._log.read(offset)
            if not content:
                break
            size_bytes += len(content)
            some, first, offset = await asyncio.to_thread(self._examine, content, end)
            found += some
            lowest = min(lowest, first)
        self.before = max(lowest, self._log.start)
        for one in reversed(found):
            if len(self.found) == self._limit or self.found_bytes > ROWS_BYTES_MAX:
                self.full, self.before = True, self.found[0][1].offset
                break
            self.found.appendleft(one)
            self.found_bytes += len(one[1].key or b"") + len(one[1].value or b"")
        return size_bytes

    def _examine(self, content: bytes, end: int) -> tuple[list[tuple[BatchHeader, Record]], int, int]:
        """Return what is found in batches, their lowest offset, and where to read on. A batch may have millions of
        records, so a thread does this.
        """
        lowest = offset = end
        found: list[tuple[BatchHeader, Record]] = []
        for position, header in iter_batches(content):
            if header.base_offset >= end:
                return found, lowest, end
            lowest, offset = min(lowest, header.base_offset), header.next_offset
            if header.is_control and self._conditions.has_content:
                continue
            if self._conditions.may_match(header.base_offset, header.next_offset, header.max_timestamp):
                records = iter_records(content, position, headers_max=HEADERS_MAX + 1)
                matching = ((header, one) for one in records if one.offset < end and self._conditions.matches(one))
                found += deque(matching, maxlen=self._limit + 1)  # one more, which shows that there are more
        return found, lowest, offset


async def search_records(on: ControlledCluster, request: ControlRequest) -> FoundRecordsRow:
    """Find records of a topic, newest first."""
    topic = topic_of(on, request)

    async def open_log(index: int) -> ReadableLog:
        return LeaderLog(leader_of(on, topic, index))

    return await search(request.query, topic.partitions, open_log, now=await time_of_day(on))


async def search(
    query: Mapping[str, str],
    partitions: Collection[int],
    open_log: Callable[[int], Awaitable[ReadableLog]],
    *,
    now: datetime,
) -> FoundRecordsRow:
    """Find records in these partitions, newest first; `now` is the time of day in the cluster.

    `open_log` raises UnknownNode for a partition that does not exist, and ActionRefused for one without a leader.
    """
    limit = max(1, min(number_of(query, "limit", 50), RECORDS_MAX))
    conditions = _filter(query, now)
    before = _cursor(query.get("before", ""))
    scans: dict[int, PartitionScan] = {}
    leaderless = []
    for index in [number_of(query, "partition")] if query.get("partition") else sorted(partitions):
        if before and index not in before:
            continue
        try:
            scans[index] = PartitionScan(await open_log(index), before.get(index), conditions, limit)
        except ActionRefused as refused:
            if query.get("partition") or isinstance(refused, UnknownNode):
                raise
            leaderless.append(index)
    scanned_bytes = 0
    while scanned_bytes < SCAN_BYTES_MAX and sum(len(one.found) for one in scans.values()) < limit:
        left = [one for one in scans.values() if not one.over]
        if not left:
            break
        for one in left:
            scanned_bytes += await one.step()
    rows: list[FoundRecordRow] = [
        {"partition": index, **record_row(header, one)} for index, scan in scans.items() for header, one in scan.found
    ]
    rows.sort(key=lambda one: (-one["timestamp"], one["partition"], -one["offset"]))
    following = {index: one.before for index, one in scans.items() if one.full or not one.over}
    for row in rows[limit:]:
        following[row["partition"]] = max(following.get(row["partition"], 0), row["offset"] + 1)
    return {
        "records": rows[:limit],
        "scanned_bytes": scanned_bytes,
        "without_leader": leaderless,
        "before": ",".join(f"{index}:{offset}" for index, offset in sorted(following.items())),
    }


def _filter(query: Mapping[str, str], now: datetime) -> RecordFilter:
    key, value = query.get("key"), query.get("value")
    return RecordFilter(
        key=key.encode(errors="replace") if key else None,
        value=value.encode(errors="replace") if value else None,
        header=query.get("header") or None,
        offset=number_of(query, "offset") if query.get("offset") else None,
        from_ms=_time_ms(query, "from", now),
        to_ms=_time_ms(query, "to", now),
    )


def _time_ms(query: Mapping[str, str], word: str, now: datetime) -> int | None:
    said = query.get(word)
    if not said:
        return None
    found = parse_position(said, now=now)
    if not isinstance(found, datetime):
        raise ValueError(f"{word} is a time such as 2026-11-23T10:00, or 15m, 2h, 1d ago, not {said[:80]!r}")
    return int(found.timestamp() * 1000)


def _cursor(text: str) -> dict[int, int]:
    """Partition -> the offset before which a search goes on."""
    found = {}
    for part in text.split(",") if text else ():
        index, _, offset = part.partition(":")
        if not (index.isdecimal() and offset.isdecimal() and len(index) <= DIGITS_MAX and len(offset) <= DIGITS_MAX):
            raise ValueError(f"before is as a response had it, such as 0:120,1:77, not {text[:80]!r}")
        found[int(index)] = int(offset)
    return found


SEARCH_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        ONE + "/search",
        "Records of all partitions that match every given condition, newest first; says where the search goes on.",
        search_records,
        query=SearchQuery,
        waits=True,
    ),
)
