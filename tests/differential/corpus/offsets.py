"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.differential.case import NOW_MS, Run, batch, case

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def offsets(
    name: str, *rows: tuple[int, int], epoch: int = -1, replica: int = -1, isolation: int = 0, count: int = 1
) -> ListOffsetsRequest:
    """Partitions and timestamps of one topic."""
    partitions = [
        ListOffsetsPartition(
            partition_index=index, current_leader_epoch=epoch, timestamp=timestamp, max_num_offsets=count
        )
        for index, timestamp in rows
    ]
    return ListOffsetsRequest(
        replica_id=replica, isolation_level=isolation, topics=[ListOffsetsTopic(name=name, partitions=partitions)]
    )


@case("ListOffsets")
async def of_an_empty_log(run: Run) -> None:
    await run.create(name := run.name())
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, -6, 0, NOW_MS):
        await run.ask(offsets(name, (0, timestamp)))


@case("ListOffsets")
async def of_a_log(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a", b"b", at_ms=NOW_MS))
    await run.append(name, batch(b"c", at_ms=NOW_MS + 5000))
    await run.append(name, batch(b"d", at_ms=NOW_MS + 3000))
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, -6, 0):
        await run.ask(offsets(name, (0, timestamp)))
    for distance_ms in (0, 1, 2, 3000, 4000, 5000, 5001):
        await run.ask(offsets(name, (0, NOW_MS + distance_ms)))


@case("ListOffsets")
async def of_compressed_batches(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a", b"b", b"c", at_ms=NOW_MS, codec="gzip"))
    for distance_ms in (0, 1, 2, 3):
        await run.ask(offsets(name, (0, NOW_MS + distance_ms)))
    await run.ask(offsets(name, (0, MAX_TIMESTAMP)))


@case("ListOffsets", "0")
async def several_offsets(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a", b"b"))
    for count in (0, 1, 2, 10):
        for timestamp in (LATEST, EARLIEST, NOW_MS * 2):
            await run.ask(offsets(name, (0, timestamp), count=count))


@case("ListOffsets")
async def of_what_is_not_there(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(offsets(name, (1, LATEST), (0, LATEST), (-1, LATEST)))
    await run.ask(offsets(run.name("none"), (0, LATEST)))
    await run.ask(offsets("not a name", (0, LATEST)))
    await run.ask(offsets(name))
    await run.ask(ListOffsetsRequest(replica_id=-1, topics=[]))


@case("ListOffsets")
async def the_same_partition_twice(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(offsets(name, (0, LATEST), (0, EARLIEST)))


@case("ListOffsets", "4-9")
async def with_epochs(run: Run) -> None:
    await run.create(name := run.name())
    for epoch in (0, 1, -1, -2):
        await run.ask(offsets(name, (0, LATEST), epoch=epoch))


@case("ListOffsets")
async def as_a_replica(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a"))
    for replica in (-2, -3, 1, 77):
        await run.ask(offsets(name, (0, LATEST), replica=replica))


@case("ListOffsets", "2-9")
async def with_isolation(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a"))
    for level in (0, 1, 2):
        await run.ask(offsets(name, (0, LATEST), isolation=level))


def epoch_end(name: str, *rows: tuple[int, int, int], replica: int = -2) -> OffsetForLeaderEpochRequest:
    """Rows: partition, current leader epoch, asked epoch."""
    partitions = [
        OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=asked)
        for index, current, asked in rows
    ]
    return OffsetForLeaderEpochRequest(
        replica_id=replica, topics=[OffsetForLeaderTopic(topic=name, partitions=partitions)]
    )


@case("OffsetForLeaderEpoch")
async def ends(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(epoch_end(name, (0, -1, 0)))
    await run.append(name, batch(b"a", b"b"))
    for asked in (0, 1, -1, -2):
        await run.ask(epoch_end(name, (0, -1, asked)))


@case("OffsetForLeaderEpoch", "2-4")
async def current_epochs(run: Run) -> None:
    await run.create(name := run.name())
    for current in (0, 1, -2):
        await run.ask(epoch_end(name, (0, current, 0)))


@case("OffsetForLeaderEpoch")
async def ends_of_what_is_not_there(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(epoch_end(name, (1, -1, 0), (0, -1, 0), (-1, -1, 0)))
    await run.ask(epoch_end(run.name("none"), (0, -1, 0)))
    await run.ask(OffsetForLeaderEpochRequest(topics=[]))
    await run.ask(epoch_end(name, (0, -1, 0), (0, -1, 0)))


@case("OffsetForLeaderEpoch", "3-4")
async def ends_for_replicas(run: Run) -> None:
    await run.create(name := run.name())
    for replica in (-1, -2, 1, 77):
        await run.ask(epoch_end(name, (0, -1, 0), replica=replica))
