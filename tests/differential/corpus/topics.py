"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

from typing import Any

from anabranch.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.wire import ZERO_UUID
from tests.differential.case import Run, batch, case


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: list[tuple[int, list[int]]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    """A topic to be created."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignments or []
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(*topics: CreatableTopic, timeout_ms: int = 10000, validate_only: bool = False) -> CreateTopicsRequest:
    """A request to create them."""
    return CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


@case("CreateTopics")
async def by_count(run: Run) -> None:
    await run.ask(create(topic(run.name("one")), topic(run.name("three"), partitions=3)))
    await run.ask(create(topic(run.name("one"))))
    await run.ask(create())


@case("CreateTopics")
async def bad_names(run: Run) -> None:
    for name in ("", ".", "..", "a b", "x" * 250, "ü", "__consumer_offsets"):
        await run.ask(create(topic(name)))


@case("CreateTopics")
async def colliding_names(run: Run) -> None:
    stem = run.name()
    await run.ask(create(topic(f"{stem}.a_b")))
    await run.ask(create(topic(f"{stem}_a.b")))


@case("CreateTopics")
async def bad_counts(run: Run) -> None:
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, 2), (1, -2), (0, 0)):
        await run.ask(create(topic(run.name(), partitions, replicas)))


@case("CreateTopics")
async def default_counts(run: Run) -> None:
    await run.ask(create(topic(run.name("p"), -1, 1)))
    await run.ask(create(topic(run.name("r"), 1, -1)))
    await run.ask(create(topic(run.name("b"), -1, -1)))


@case("CreateTopics")
async def by_assignment(run: Run) -> None:
    await run.ask(create(topic(run.name("good"), -1, -1, assignments=[(0, [1]), (1, [1])])))
    await run.ask(create(topic(run.name("both"), 2, 1, assignments=[(0, [1]), (1, [1])])))
    await run.ask(create(topic(run.name("count"), 2, -1, assignments=[(0, [1])])))
    await run.ask(create(topic(run.name("gap"), -1, -1, assignments=[(0, [1]), (2, [1])])))
    await run.ask(create(topic(run.name("late"), -1, -1, assignments=[(1, [1])]), timeout_ms=300))
    await run.ask(create(topic(run.name("twice"), -1, -1, assignments=[(0, [1]), (0, [1])])))
    await run.ask(create(topic(run.name("double"), -1, -1, assignments=[(0, [1, 1])])))
    await run.ask(create(topic(run.name("nobody"), -1, -1, assignments=[(0, [])]), timeout_ms=300))
    await run.ask(create(topic(run.name("unknown"), -1, -1, assignments=[(0, [77])]), timeout_ms=300))
    await run.ask(create(topic(run.name("negative"), -1, -1, assignments=[(-1, [1])]), timeout_ms=300))
    await run.ask(create(topic(run.name("uneven"), -1, -1, assignments=[(0, [1]), (1, [1, 77])])))


@case("CreateTopics", "1-7")
async def only_validated(run: Run) -> None:
    await run.ask(create(topic(run.name(), 2), validate_only=True))
    await run.ask(create(topic(run.name(), 2, 5), validate_only=True))
    await run.ask(create(topic(run.name(), -1, -1, assignments=[(0, [1])]), validate_only=True))
    await run.ask(MetadataRequest(topics=[MetadataRequestTopic(name=run.name())], allow_auto_topic_creation=False))


@case("CreateTopics")
async def the_same_name_twice(run: Run) -> None:
    await run.ask(create(topic(run.name("a")), topic(run.name("b")), topic(run.name("a"))))


@case("CreateTopics")
async def with_configs(run: Run) -> None:
    await run.ask(create(topic(run.name("a"), configs={"retention.ms": "60000", "cleanup.policy": "compact"})))
    await run.ask(
        create(topic(run.name("b"), configs={"cleanup.policy": "compact,delete", "segment.bytes": "1048576"}))
    )


@case("CreateTopics")
async def with_bad_configs(run: Run) -> None:
    for name, value in (
        ("no.such.config", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", None),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", ""),
        ("segment.bytes", "13"),
        ("segment.bytes", "2147483648"),
        ("min.insync.replicas", "0"),
        ("compression.type", "rar"),
        ("min.cleanable.dirty.ratio", "2"),
        ("message.timestamp.type", "Never"),
        ("unclean.leader.election.enable", "maybe"),
        ("preallocate", "1"),
        ("flush.messages", "0"),
        ("flush.ms", "-1"),
        ("max.message.bytes", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("index.interval.bytes", "-1"),
        ("segment.index.bytes", "3"),
        ("segment.jitter.ms", "-1"),
        ("segment.ms", "0"),
        ("delete.retention.ms", "-1"),
        ("file.delete.delay.ms", "-1"),
        ("min.compaction.lag.ms", "-1"),
        ("message.timestamp.before.max.ms", "-1"),
        ("message.timestamp.after.max.ms", "-1"),
        ("message.timestamp.difference.max.ms", "-1"),
        ("message.format.version", "9.9"),
        ("message.downconversion.enable", "si"),
        ("leader.replication.throttled.replicas", "x"),
        ("follower.replication.throttled.replicas", "0:x"),
        ("remote.storage.enable", "true"),
        ("local.retention.ms", "-3"),
        ("local.retention.bytes", "-3"),
        ("compression.gzip.level", "99"),
        ("compression.lz4.level", "99"),
        ("compression.zstd.level", "99"),
    ):
        await run.ask(create(topic(run.name(), configs={name: value})))


@case("CreateTopics", "5")
async def with_good_configs(run: Run) -> None:
    for number, (name, value) in enumerate(
        (
            ("retention.ms", "-1"),
            ("retention.bytes", "1000"),
            ("min.cleanable.dirty.ratio", "0.25"),
            ("message.timestamp.type", "LogAppendTime"),
            ("unclean.leader.election.enable", "TRUE"),
            ("preallocate", "true"),
            ("flush.messages", "1"),
            ("flush.ms", "0"),
            ("max.message.bytes", "0"),
            ("max.compaction.lag.ms", "1"),
            ("compression.type", "zstd"),
            ("compression.gzip.level", "9"),
            ("compression.lz4.level", "9"),
            ("compression.zstd.level", "-5"),
            ("leader.replication.throttled.replicas", "0:1,1:1"),
            ("follower.replication.throttled.replicas", "*"),
            ("message.timestamp.before.max.ms", "10"),
            ("message.format.version", "2.8"),
            ("segment.jitter.ms", "7"),
            ("retention.ms", " 10 "),
            ("cleanup.policy", " compact , delete "),
            ("local.retention.ms", "-2"),
            ("min.insync.replicas", "3"),
        )
    ):
        await run.ask(create(topic(run.name(f"t{number}"), configs={name: value})))


@case("CreateTopics")
async def with_the_same_config_twice(run: Run) -> None:
    one = topic(run.name())
    one.configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("1000", "2000")]
    await run.ask(create(one))


@case("CreateTopics")
async def without_time(run: Run) -> None:
    await run.ask(create(topic(run.name("a")), timeout_ms=0))
    await run.ask(create(topic(run.name("b")), timeout_ms=-1))


def delete(*names: str) -> DeleteTopicsRequest:
    """By name, in the form of every version."""
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
        topic_names=list(names),
        timeout_ms=10000,
    )


@case("DeleteTopics")
async def by_name(run: Run) -> None:
    await run.create(one := run.name("one"))
    await run.create(two := run.name("two"))
    await run.ask(delete(one, two))
    await run.ask(delete(one))
    await run.ask(delete())


@case("DeleteTopics")
async def mixed(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(delete(run.name("none"), name, "not a name", ""))


@case("DeleteTopics")
async def named_twice(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(delete(name, name))


@case("DeleteTopics")
async def no_time(run: Run) -> None:
    await run.create(name := run.name())
    request = delete(name)
    request.timeout_ms = 0
    await run.ask(request)


@case("DeleteTopics", "6")
async def by_id(run: Run) -> None:
    await run.create(name := run.name())
    known = await run.prepare(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    topic_id = known.topics[0].topic_id

    def by(*states: tuple[str | None, bytes]) -> DeleteTopicsRequest:
        rows = [DeleteTopicState(name=given, topic_id=id_) for given, id_ in states]
        return DeleteTopicsRequest(topics=rows, timeout_ms=10000)

    await run.ask(by((None, b"\x11" * 16)))
    await run.ask(by((name, topic_id)))
    await run.ask(by((None, ZERO_UUID)))
    await run.ask(by((None, topic_id), (name, ZERO_UUID)))
    await run.ask(by((None, topic_id), (None, topic_id)))
    await run.ask(by((None, topic_id)))


def grow(
    *topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False, timeout_ms: int = 10000
) -> CreatePartitionsRequest:
    """More partitions for some topics."""
    rows = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None if given is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in given],
        )
        for name, count, given in topics
    ]
    return CreatePartitionsRequest(topics=rows, timeout_ms=timeout_ms, validate_only=validate_only)


def partitions_of(answer: Any) -> int:
    """How many partitions Metadata shows."""
    return len(answer.topics[0].partitions)


@case("CreatePartitions")
async def grown(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(grow((name, 3, None), validate_only=True))
    await run.ask(grow((name, 3, None)))
    seen = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    await run.settled(seen, lambda answer: partitions_of(answer) == 3)
    await run.ask(grow((name, 5, [[1], [1]])))
    await run.settled(seen, lambda answer: partitions_of(answer) == 5)


@case("CreatePartitions")
async def refused(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    for count, given in (
        (2, None),
        (1, None),
        (0, None),
        (-1, None),
        (3, [[77]]),
        (3, [[1], [1]]),
        (3, []),
        (3, [[]]),
        (3, [[1, 1]]),
        (4, [[1], [1, 77]]),
    ):
        await run.ask(grow((name, count, given)))


@case("CreatePartitions")
async def of_unknown_topics(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(grow((run.name("none"), 3, None), (name, 1, None), ("not a name", 2, None)))
    await run.ask(grow((name, 2, None), (name, 3, None)))
    await run.ask(grow())
    await run.ask(grow(("__consumer_offsets", 1, None)))


def trim(*partitions: tuple[str, int, int]) -> DeleteRecordsRequest:
    """Delete records before an offset."""
    rows = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for name, index, offset in partitions
    ]
    return DeleteRecordsRequest(topics=rows, timeout_ms=5000)


@case("DeleteRecords")
async def up_to_an_offset(run: Run) -> None:
    await run.create(name := run.name())
    await run.append(name, batch(b"a", b"b", b"c"))
    await run.ask(trim((name, 0, 2)))
    await run.ask(trim((name, 0, 1)))
    earliest = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
    await run.ask(ListOffsetsRequest(replica_id=-1, topics=[earliest]))
    await run.ask(trim((name, 0, 4)))
    await run.ask(trim((name, 0, -2)))
    await run.ask(trim((name, 0, -1)))
    await run.ask(trim((name, 0, 3)))


@case("DeleteRecords")
async def of_what_is_not_there(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(trim((name, 1, 0)))
    await run.ask(trim((run.name("none"), 0, 0)))
    await run.ask(trim((name, -1, 0)))
    await run.ask(trim())


@case("DeleteRecords")
async def of_a_compacted_topic(run: Run) -> None:
    await run.create(name := run.name(), configs={"cleanup.policy": "compact"})
    await run.append(name, batch(b"a"))
    await run.ask(trim((name, 0, 1)))
    await run.ask(trim(("__consumer_offsets", 0, 0)))
