"""The order of rows when some of a request are refused: Kafka answers some of them first, others last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differential.case import Run, case
from tests.differential.corpus.consume import id_of
from tests.differential.corpus.groups import coordinator
from tests.differential.corpus.transactions import Producer

PARTITIONS = (("a", [0]), ("none", [0]), ("b", [0, 9, 1]), ("gone", [0]), ("c", [9, 0]))
"""Topics and partitions of a request: `none`, `gone` and the partitions 9 do not exist."""


def rows_of(run: Run, of_topic: Callable[[str, list[Any]], Any], of_partition: Callable[[int], Any]) -> list[Any]:
    """Topics of a request."""
    return [of_topic(run.name(name), [of_partition(one) for one in indexes]) for name, indexes in PARTITIONS]


async def made(run: Run) -> None:
    """Create what exists."""
    for name, count in (("a", 1), ("b", 2), ("c", 1)):
        await run.create(run.name(name), partitions=count)


async def commit_of(run: Run, group: str) -> None:
    """Let the group have offsets."""
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    await run.prepare(
        OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=run.name("a"), partitions=[row])]),
        version=8,
    )


@case("OffsetCommit", "8-10")
async def refused_among_committed(run: Run) -> None:
    await made(run)
    await coordinator(run, group := run.name("g"))
    rows = rows_of(
        run,
        lambda name, rows: OffsetCommitRequestTopic(name=name, partitions=rows),
        lambda index: OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=""),
    )
    await run.ask(OffsetCommitRequest(group_id=group, topics=rows))


@case("TxnOffsetCommit", "3-5")
async def refused_among_staged(run: Run) -> None:
    await made(run)
    await coordinator(run, group := run.name("g"))
    producer = await Producer.made(run, run.name("x"))
    await run.prepare(producer.group(group), version=3)
    rows = rows_of(
        run,
        lambda name, rows: TxnOffsetCommitRequestTopic(name=name, partitions=rows),
        lambda index: TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=""),
    )
    await run.ask(
        TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=rows,
        )
    )


@case("OffsetDelete")
async def refused_among_forgotten(run: Run) -> None:
    await made(run)
    await coordinator(run, group := run.name("g"))
    await commit_of(run, group)
    rows = rows_of(
        run,
        lambda name, rows: OffsetDeleteRequestTopic(name=name, partitions=rows),
        lambda index: OffsetDeleteRequestPartition(partition_index=index),
    )
    await run.ask(OffsetDeleteRequest(group_id=group, topics=rows))


@case("Fetch", "12-17")
async def refused_among_fetched(run: Run) -> None:
    await made(run)
    ids = {run.name(name): await id_of(run, run.name(name)) for name in ("a", "b", "c")}
    rows = rows_of(
        run,
        lambda name, rows: FetchTopic(topic=name, topic_id=ids.get(name, name.encode()[-16:]), partitions=rows),
        lambda index: FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000),
    )
    await run.ask(FetchRequest(topics=rows, max_wait_ms=0, min_bytes=0))
