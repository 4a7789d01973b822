"""The routes of a topic: plan a resize, resize, write records, read records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, NotRequired, TypedDict

from anabranch.broker.administration.topic_creation import NEW_PARTITIONS_MAX
from anabranch.clients.resize_plan import plan_resize
from anabranch.control import state
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import ControlRequest, Route, count_of
from anabranch.dashboard.collectors.topics import DRAWN_MAX
from anabranch.inspect.record_text import parse, to_value
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import parent
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import TopicImage
    from anabranch.broker.replication.partition import Partition
    from anabranch.clients.producer.producer import Producer
    from anabranch.protocol.records.batch import BatchHeader
    from anabranch.protocol.records.record import Record

RECORDS_MAX: Final = 500
HEADERS_MAX: Final = 1000
"""The number of headers of a record that are shown and searched."""
NOT_ORDERED: Final = "{topic} is not ordered: it grows as in Kafka, and keys do not keep their order"
READ_BYTES: Final = 1 << 20
DIGITS_MAX: Final = 18
"""The number of digits up to which every number fits an int64."""
RECORDS_BODY_BYTES_MAX: Final = 1 << 20


class PlanQuery(TypedDict):
    """The parameters of a plan."""

    partitions: Annotated[int, "the new number of partitions"]


class PlanRow(TypedDict):
    """The effects of a resize, computed before anything is changed."""

    topic: str
    before: Annotated[int, "the number of partitions now"]
    after: Annotated[int, "the number of partitions afterwards"]
    generation: Annotated[int, "the generation that the resize begins"]
    moved_share: Annotated[float, "the share of all keys that change their partition"]
    parents: Annotated[list[int], "the partition from which each partition splits off; -1 for partition 0"]
    shares: Annotated[list[float], "the share of all keys in each partition afterwards"]
    imbalance_before: Annotated[float, "load of the fullest partition over the mean"]
    imbalance_after: float
    fenced: Annotated[list[int], "the partitions whose leaders adopt the new generation"]
    waits: Annotated[dict[str, list[int]], "partition -> those that a group must have read first"]


class ResizeBody(TypedDict):
    """A resize."""

    partitions: Annotated[int, "the new number of partitions, larger or smaller"]


class BinaryContent(TypedDict):
    """Bytes that are not UTF-8."""

    base64: str


Content = str | BinaryContent | None


class NewRecord(TypedDict):
    """A record to write."""

    value: NotRequired[Content]
    key: NotRequired[Content]
    headers: NotRequired[Annotated[list[list[Content]], "each a name and a value"]]
    partition: NotRequired[Annotated[int | None, "an explicit partition, whatever the key"]]
    timestamp: NotRequired[Annotated[int | None, "in milliseconds since the epoch"]]


class NewRecordsBody(TypedDict):
    """Records to write."""

    records: Annotated[list[NewRecord], f"at most {RECORDS_MAX} records"]


class StoredRow(TypedDict):
    """The place where a record was stored."""

    partition: int
    offset: int


class RecordsQuery(TypedDict):
    """The records to read."""

    partition: Annotated[int, "the partition"]
    offset: NotRequired[Annotated[int, "the first offset; if left out, the last records are returned"]]
    limit: NotRequired[Annotated[int, f"the maximum number of records; 50 if left out, at most {RECORDS_MAX}"]]


class RecordRow(TypedDict):
    """A record of a partition. A control record has no key and value."""

    offset: int
    timestamp: Annotated[int, "in milliseconds since the epoch"]
    key: Content
    value: Content
    headers: Annotated[list[list[Content]], "each a name and a value; the first 1000"]
    more_headers: NotRequired[Annotated[bool, "whether there are more headers"]]
    epoch: Annotated[int, "the leader epoch"]
    producer_id: int
    kind: Annotated[str, "control, transactional, or empty"]


class RecordsRow(TypedDict):
    """Records of a partition."""

    start: Annotated[int, "the log start offset"]
    end: Annotated[int, "the high watermark"]
    records: list[RecordRow]


async def get_plan(on: ControlledCluster, request: ControlRequest) -> PlanRow:
    """Get the plan of a resize."""
    topic = topic_of(on, request)
    if topic.base <= 0:
        raise ActionRefused(NOT_ORDERED.format(topic=topic.name))
    return plan_row(topic.name, Lineage(topic.base, topic.history), partitions_of(request))


def plan_row(topic: str, lineage: Lineage, count: int) -> PlanRow:
    """The plan of a resize as a JSON row."""
    plan = plan_resize(lineage, count)
    return {
        "topic": topic,
        "before": plan.before,
        "after": plan.after,
        "generation": plan.generation,
        "moved_share": plan.moved_share,
        "parents": [-1, *(parent(index, lineage.base) for index in range(1, min(plan.after, DRAWN_MAX)))],
        "shares": list(plan.shares_after),
        "imbalance_before": plan.imbalance_before,
        "imbalance_after": plan.imbalance_after,
        "fenced": list(plan.fenced),
        "waits": {str(partition): list(sources) for partition, sources in plan.waits.items()},
    }


async def resize_topic(on: ControlledCluster, request: ControlRequest) -> state.TopicRow:
    """Change a topic's number of partitions, and respond when the resize is published."""
    topic, count = topic_of(on, request), count_of(request.body, "partitions")
    async with on.admin() as admin:
        await admin.create_partitions(topic.name, count, allow_shrink=True)
    return state.topic_row(on.cluster, topic_of(on, request))


async def write_records(on: ControlledCluster, request: ControlRequest) -> list[StoredRow]:
    """Write records as a producer does that keeps keys in order; the response has their offsets."""
    return await write_each(on.producer(), topic_of(on, request).name, request.body.get("records"))


async def write_each(producing: Producer, topic: str, given: object) -> list[StoredRow]:
    """Write the records of a body. Raises ValueError for other bodies."""
    if not isinstance(given, list) or not 0 < len(given) <= RECORDS_MAX:
        raise ValueError(f'send {{"records": [{{"key": "a", "value": "b"}}]}}, of 1 to {RECORDS_MAX} records')
    records = [parse(one) for one in given]
    async with producing as producer:
        sent = [
            await producer.send(
                topic,
                one.value,
                one.key,
                partition=one.partition,
                timestamp_ms=one.timestamp_ms,
                headers=list(one.headers),
            )
            for one in records
        ]
        stored = [await one for one in sent]
    return [{"partition": one.partition, "offset": one.offset} for one in stored]


async def read_records(on: ControlledCluster, request: ControlRequest) -> RecordsRow:
    """Read records of one partition up to its high watermark: from an offset, or the last ones."""
    topic, index = topic_of(on, request), number_of(request.query, "partition")
    limit = min(number_of(request.query, "limit", 50), RECORDS_MAX)
    leader = leader_of(on, topic, index)
    log, end = leader.log, leader.high_watermark
    first = number_of(request.query, "offset") if "offset" in request.query else max(end - limit, 0)
    offset = max(first, log.log_start_offset)
    rows: list[RecordRow] = []
    while offset < end and len(rows) < limit:
        content = bytes(log.read(offset, READ_BYTES, limit_offset=end, min_one_batch=True))
        if not content:
            break
        found, offset = await read_rows(content, first, end, limit - len(rows))
        rows += found
    return {"start": log.log_start_offset, "end": end, "records": rows[:limit]}


async def read_rows(content: bytes, first: int, end: int, limit: int) -> tuple[list[RecordRow], int]:
    """Read the records of batches from an offset on, at most `limit`; return also the offset behind the last batch.

    In a thread, because a batch may have millions of records.
    """

    def read() -> tuple[list[RecordRow], int]:
        rows: list[RecordRow] = []
        offset = first
        for position, header in iter_batches(content):
            offset = header.next_offset
            records = iter_records(content, position, headers_max=HEADERS_MAX + 1)
            found = (one for one in records if first <= one.offset < end)
            rows += [record_row(header, one) for one in islice(found, limit - len(rows))]
            if len(rows) >= limit:
                break
        return rows, offset

    return await asyncio.to_thread(read)


def record_row(header: BatchHeader, one: Record) -> RecordRow:
    """A record of a batch as a JSON row."""
    row: RecordRow = {
        "offset": one.offset,
        "timestamp": one.timestamp_ms,
        "key": None if header.is_control else to_value(one.key),
        "value": None if header.is_control else to_value(one.value),
        "headers": [[name, to_value(value)] for name, value in one.headers[:HEADERS_MAX]],
        "epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "kind": "control" if header.is_control else "transactional" if header.is_transactional else "",
    }
    if len(one.headers) > HEADERS_MAX:
        row["more_headers"] = True
    return row


def topic_of(on: ControlledCluster, request: ControlRequest) -> TopicImage:
    """The topic in the path. Raises UnknownNode."""
    name = request.words["topic"]
    image = state.newest_image(on.cluster).get(name)
    if image is None:
        raise UnknownNode(f"there is no topic {name}")
    return image


def leader_of(on: ControlledCluster, topic: TopicImage, index: int) -> Partition:
    """The leader of a partition. Raises UnknownNode, or ActionRefused without a leader."""
    image = topic.partitions.get(index)
    if image is None:
        raise UnknownNode(f"{topic.name} has no partition {index}")
    node = on.cluster.nodes.get(image.leader)
    leader = None if node is None else node.services.replicas.replica(topic.name, index)
    if leader is None or not leader.is_leader:
        raise ActionRefused(f"{topic.name}-{index} has no leader now")
    return leader


def partitions_of(request: ControlRequest) -> int:
    """The new number of partitions in the query. Raises ValueError."""
    count = number_of(request.query, "partitions")
    if count > NEW_PARTITIONS_MAX:
        raise ValueError(f"a topic can have at most {NEW_PARTITIONS_MAX} partitions, not {count}")
    return count


def number_of(words: Mapping[str, str], word: str, absent: int = -1) -> int:
    """A number of the query. Raises ValueError if it is none, or missing without `absent`."""
    given = words.get(word, "")
    if not given and absent >= 0:
        return absent
    if not given.isdecimal() or len(given) > DIGITS_MAX:
        raise ValueError(f"{word} must be a number of at least 0, not {given[:80]!r}")
    return int(given)


ONE: Final = "/v1/topics/{topic}"
TOPIC_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        ONE + "/plan",
        "The plan of a resize: which keys move, which partitions get gates.",
        get_plan,
        query=PlanQuery,
    ),
    Route(
        "POST",
        ONE + "/partitions",
        "Resize a topic, up or down; respond when the new count is published.",
        resize_topic,
        body=ResizeBody,
        waits=True,
    ),
    Route(
        "POST",
        ONE + "/records",
        "Store records, and return their offsets.",
        write_records,
        body=NewRecordsBody,
        body_bytes_max=RECORDS_BODY_BYTES_MAX,
        waits=True,
    ),
    Route(
        "GET",
        ONE + "/records",
        "Records of a partition, up to its high watermark.",
        read_records,
        query=RecordsQuery,
    ),
)
