"""Fetch: ranges, limits, sessions, epochs, isolation, old formats."""

from __future__ import annotations

from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.case import Run, batch, case


async def id_of(run: Run, name: str) -> bytes:
    """The id of a topic."""
    known = await run.prepare(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    found: bytes = known.topics[0].topic_id
    return found


def fetch(
    name: str, topic_id: bytes, *rows: tuple[int, int], epoch: int = -1, size: int = 1 << 20, **fields: int
) -> FetchRequest:
    """Partitions and offsets of one topic."""
    partitions = [
        FetchPartition(partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=size)
        for index, offset in rows
    ]
    settings = {"max_wait_ms": 0, "min_bytes": 0, **fields}
    return FetchRequest(topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)], **settings)


@case("Fetch", "4-17")
async def ranges(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a", b"b"))
    await run.append(name, batch(b"c"))
    for offset in (0, 1, 2, 3, 4, -1, -2):
        await run.ask(fetch(name, topic_id, (0, offset)))


@case("Fetch", "4-17")
async def limits(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    topic_id = await id_of(run, name)
    for _ in range(3):
        await run.append(name, batch(b"a" * 200))
        await run.append(name, batch(b"a" * 200), 1)
    for size in (0, 1, 280, 600, -1):
        await run.ask(fetch(name, topic_id, (0, 0), (1, 0), size=size))
    for size in (0, 1, 280, 600, 1000):
        await run.ask(fetch(name, topic_id, (0, 0), (1, 0), max_bytes=size))


@case("Fetch", "4-17")
async def nothing_there(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    await run.ask(fetch(name, topic_id, (0, 0)))
    await run.ask(fetch(name, topic_id, (0, 0), max_wait_ms=50, min_bytes=1))
    await run.ask(fetch(name, topic_id, (1, 0), (-1, 0)))
    await run.ask(fetch(run.name("none"), b"\x11" * 16, (0, 0)))
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]))


@case("Fetch", "4-17")
async def the_same_partition_twice(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a"))
    await run.ask(fetch(name, topic_id, (0, 0), (0, 0)))


@case("Fetch", "9-17")
async def leader_epochs(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a"))
    for epoch in (0, 1, -1, -2, 7):
        await run.ask(fetch(name, topic_id, (0, 0), epoch=epoch))


@case("Fetch", "12-17")
async def last_fetched_epochs(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a", b"b"))
    for offset, epoch in ((2, 0), (2, 1), (3, 0), (1, 0), (0, -1), (2, -1)):
        asked = fetch(name, topic_id, (0, offset))
        asked.topics[0].partitions[0].last_fetched_epoch = epoch
        await run.ask(asked)


@case("Fetch", "7-17")
async def sessions(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a"))
    first = await run.ask(fetch(name, topic_id, (0, 0), (1, 0), session_id=0, session_epoch=0))
    nothing = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=first.session_id, session_epoch=1, topics=[])
    await run.ask(nothing)
    await run.ask(nothing)  # a wrong epoch now
    again = fetch(name, topic_id, (0, 1), session_id=first.session_id, session_epoch=2)
    await run.ask(again)
    await run.append(name, batch(b"b"), 1)
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_id=first.session_id, session_epoch=3, topics=[]))
    forget = [ForgottenTopic(topic=name, topic_id=topic_id, partitions=[1])]
    await run.ask(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=first.session_id,
            session_epoch=4,
            topics=[],
            forgotten_topics_data=forget,
        )
    )
    await run.append(name, batch(b"c"), 1)
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_id=first.session_id, session_epoch=5, topics=[]))
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_id=first.session_id, session_epoch=-1, topics=[]))
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_id=first.session_id, session_epoch=6, topics=[]))
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_id=12345, session_epoch=1, topics=[]))
    await run.ask(fetch(name, topic_id, (0, 0), session_id=12345, session_epoch=0))


@case("Fetch", "7-17")
async def sessions_with_errors(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    first = await run.ask(fetch(name, topic_id, (0, 0), (7, 0), session_id=0, session_epoch=0))
    for epoch in (1, 2):
        await run.ask(
            FetchRequest(max_wait_ms=0, min_bytes=0, session_id=first.session_id, session_epoch=epoch, topics=[])
        )
    await run.ask(fetch(name, topic_id, (0, 9), session_id=first.session_id, session_epoch=3))


@case("Fetch", "7-17")
async def an_empty_session(run: Run) -> None:
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_id=0, session_epoch=0, topics=[]))
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_id=0, session_epoch=5, topics=[]))
    await run.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_id=-1, session_epoch=0, topics=[]))


@case("Fetch", "13-17")
async def topic_ids(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a"))
    topic_id = await id_of(run, name)
    await run.ask(fetch("", topic_id, (0, 0)))
    await run.ask(fetch("", bytes(16), (0, 0)))
    both = fetch("", topic_id, (0, 0))
    both.topics += fetch("", b"\x22" * 16, (0, 0)).topics
    await run.ask(both)


@case("Fetch", "4-17")
async def isolation_levels(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a"))
    topic_id = await id_of(run, name)
    for level in (0, 1):
        await run.ask(fetch(name, topic_id, (0, 0), isolation_level=level))
        await run.ask(fetch(name, topic_id, (0, 1), isolation_level=level))


@case("Fetch", "4-17")
async def codecs(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    for codec in ("none", "gzip", "snappy", "lz4"):
        await run.append(name, batch(b"a" * 100, b"b" * 100, codec=codec))
    await run.ask(fetch(name, topic_id, (0, 0)))


@case("Fetch", "4-17")
async def zstd(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a" * 100, codec="zstd"))
    await run.ask(fetch(name, topic_id, (0, 0)))
    await run.append(name, batch(b"a"))
    await run.ask(fetch(name, topic_id, (0, 1)))


@case("Fetch", "4-17")
async def a_topic_that_compresses(run: Run) -> None:
    await run.create(name := run.name(), configs={"compression.type": "gzip"})
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a" * 100, b"b" * 100))
    await run.ask(fetch(name, topic_id, (0, 0)))


@case("Fetch", "4-17")
async def as_a_follower(run: Run) -> None:
    """A replica id that is no replica of the partition."""
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a"))
    asked = fetch(name, topic_id, (0, 0))
    for replica in (77, 1, -2, -3):
        asked.replica_id = replica
        asked.replica_state = ReplicaState(replica_id=replica)
        await run.ask(asked)


@case("Fetch", "0-3")
async def old_formats(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a", b"b"))
    await run.append(name, batch(b"c"))
    for offset in (0, 1, 2, 3, 4):
        await run.ask(fetch(name, bytes(16), (0, offset)))


@case("Fetch", "0-3")
async def old_formats_of_zstd(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a", codec="zstd"))
    await run.ask(fetch(name, bytes(16), (0, 0)))


@case("Fetch", "0-17")
async def of_a_topic_without_conversion(run: Run) -> None:
    await run.create(name := run.name(), configs={"message.downconversion.enable": "false"})
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a"))
    await run.ask(fetch(name, topic_id, (0, 0)))
