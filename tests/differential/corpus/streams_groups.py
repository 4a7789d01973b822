"""StreamsGroupHeartbeat, StreamsGroupDescribe: streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
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
from anabranch.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from anabranch.protocol.apis.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from tests.differential.case import Run, case
from tests.differential.corpus.members import Member, coordinated, join

GROUP = 32
MISSING = 1
"""Source topics are, says a status."""
Owned = dict[str, Sequence[int]]


def info(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    """A topic in between."""
    rows = [KeyValue(key=key.replace("_", "."), value=text) for key, text in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=rows)


def subtopology(
    name: str = "0",
    sources: Sequence[str] = (),
    *,
    reads: Sequence[TopicInfo] = (),
    sinks: Sequence[str] = (),
    keeps: Sequence[TopicInfo] = (),
    together: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
    regex: Sequence[str] = (),
) -> Subtopology:
    """A part of an application."""
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=list(regex),
        state_changelog_topics=list(keeps),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(reads),
        copartition_groups=[
            CopartitionGroup(source_topics=list(a), source_topic_regex=[], repartition_source_topics=list(b))
            for a, b in together
        ],
    )


def rows(owned: Owned) -> list[TaskIds]:
    """Tasks as a message has them."""
    return [TaskIds(subtopology_id=name, partitions=list(partitions)) for name, partitions in owned.items()]


def beat(
    group: str, member: str = "a", epoch: int = 0, *parts: Subtopology, **more: Any
) -> StreamsGroupHeartbeatRequest:
    """A heartbeat; with parts of a topology it is one that joins."""
    if parts:
        joins = {
            "rebalance_timeout_ms": 30_000,
            "topology": Topology(epoch=more.pop("topology_epoch", 0), subtopologies=list(parts)),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": f"process-{member}",
            "client_tags": [],
        }
        more = joins | more
    owned = more.pop("owned", None)
    if owned is not None:
        more |= {"active_tasks": rows(owned), "standby_tasks": rows(more.pop("standby", {})), "warmup_tasks": []}
    return StreamsGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, endpoint_information_epoch=more.pop("known", 0), **more
    )


async def source(run: Run, suffix: str = "t", partitions: int = 1) -> str:
    """A topic that the coordinator of groups knows, too."""
    await run.create(topic := run.name(suffix), partitions)
    await coordinated(run, group := run.name(f"looks-for-{suffix}"))
    request = beat(group, "probe", 0, subtopology(sources=[topic]))
    await run.settled(request, lambda answer: all(one.status_code != MISSING for one in answer.status))
    await run.prepare(beat(group, "probe", -1))
    await run.prepare(DeleteGroupsRequest(groups_names=[group]))
    return topic


async def settle(run: Run, request: StreamsGroupHeartbeatRequest, good: Callable[[Any], bool] | None = None) -> Any:
    """Send heartbeats, each with the epoch of the last answer, until one is good; only that is compared.

    Without a condition: until tasks are dealt.
    """

    def here(answer: Any) -> bool:
        if answer.error_code == 0:
            request.member_epoch = answer.member_epoch
            request.topology = None
        found = good(answer) if good is not None else bool(answer.active_tasks)
        return bool(found or answer.error_code)

    return await run.until(request, here)


def calm(answer: Any) -> bool:
    """Whether the group is healthy and nothing waits."""
    return not answer.status


@case("StreamsGroupHeartbeat", kafka="4.2")
async def not_valid(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run)
    part = subtopology(sources=[topic])
    await run.ask(beat("", "a", 0, part))
    await run.ask(beat(group, "", 0, part))
    await run.ask(beat(group, "a", 0))
    await run.ask(beat(group, "a", 0, part, rebalance_timeout_ms=-1))
    await run.ask(beat(group, "a", 0, part, rack_id=""))
    await run.ask(beat(group, "a", 0, part, instance_id="one"))
    await run.ask(beat(group, "a", 0, part, owned={"0": [0]}))
    await run.ask(beat(group, "a", 0, part, standby_tasks=rows({"0": [0]})))
    await run.ask(beat(group, "a", 0, part, warmup_tasks=rows({"0": [0]})))
    await run.ask(beat(group, "a", 0, part, task_offsets=[TaskOffset(subtopology_id="0", partition=0, offset=1)]))
    await run.ask(beat(group, "a", 0, part, task_end_offsets=[]))
    await run.ask(beat(group, "a", 0, subtopology(sources=[topic], regex=["t.*"])))
    await run.ask(beat(group, "a", 0, subtopology(sources=["__consumer_offsets"])))
    await run.ask(beat(group, "a", 0, subtopology(sources=["not a name"])))
    await run.ask(beat(group, "a", 0, subtopology(sources=[topic], sinks=["not a name"])))
    await run.ask(beat(group, "a", 0, subtopology(sources=[topic], keeps=[info("log", 3)])))
    await run.ask(beat(group, "a", 1, part))
    await run.ask(beat(group, "a", -2))
    await run.ask(beat(group, "a", -3))
    await run.ask(beat(group, "a", 1, active_tasks=[]))
    await run.ask(beat(group, "a", 1))
    await run.ask(beat(group, "a", -1))
    await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def one_member(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run, partitions=2)
    await run.ask(beat(group, "a", 0, subtopology(sources=[topic])))
    await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))
    epoch = (await settle(run, beat(group, "a", 1))).member_epoch
    await run.ask(StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True))
    await run.ask(beat(group, "a", epoch, owned={"0": [0, 1]}))
    await run.ask(beat(group, "a", epoch))
    await run.ask(beat(group, "a", epoch, owned={"0": [2]}))
    await run.ask(beat(group, "a", epoch, owned={"7": [0]}))
    await run.ask(beat(group, "a", epoch + 1))
    await run.ask(beat(group, "a", epoch - 1, owned={"0": [0, 1]}))
    await run.ask(beat(group, "a", epoch - 1))
    await run.ask(beat(group, "b", epoch))
    await run.ask(beat(group, "a", 0, subtopology(sources=[topic])))
    await run.ask(beat(group, "b", -1))
    await run.ask(beat(group, "a", -1))
    await run.ask(beat(group, "a", -1))
    await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def topics_in_between(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run, partitions=3)
    between, log = run.name("words-repartition"), run.name("counts-changelog")
    parts = (
        subtopology("0", [topic], sinks=[between]),
        subtopology("1", reads=[info(between, cleanup_policy="delete")], keeps=[info(log, cleanup_policy="compact")]),
    )
    await run.ask(beat(group, "a", 0, *parts))
    names = [MetadataRequestTopic(name=name) for name in (between, log)]
    await run.until(
        MetadataRequest(topics=names, allow_auto_topic_creation=False),
        lambda answer: all(len(one.partitions) == 3 for one in answer.topics),
    )
    await settle(run, beat(group, "a", 1), calm)
    await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def topics_that_are_wrong(run: Run) -> None:
    two = await source(run, "two", partitions=2)
    three = await source(run, "three", partitions=3)
    both = [([0, 1], [])]
    between, log = run.name("between"), run.name("log")
    stories: dict[str, list[Subtopology]] = {
        "missing": [subtopology(sources=[two, run.name("none")])],
        "uneven": [subtopology(sources=[two, three], together=both)],
        "fixed": [
            subtopology("0", [two], sinks=[between]),
            subtopology("1", [three], reads=[info(between, 2)], together=[([0], [0])]),
        ],
        "loop": [subtopology("0", reads=[info(between)], sinks=[between])],
        "nobody": [subtopology("0", [two]), subtopology("1", reads=[info(between)])],
        "width": [subtopology(sources=[two], keeps=[info(three)])],
        "config": [subtopology(sources=[two], keeps=[info(log, no_such="x")])],
    }
    for name, parts in stories.items():
        await coordinated(run, group := run.name(f"g-{name}"))
        await run.ask(beat(group, "a", 0, *parts))
        await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def widths_that_follow(run: Run) -> None:
    two = await source(run, "two", partitions=2)
    four = await source(run, "four", partitions=4)
    a, b, log = run.name("a"), run.name("b"), run.name("log")
    stories: dict[str, list[Subtopology]] = {
        "chain": [
            subtopology("0", [two], sinks=[a]),
            subtopology("1", [four], reads=[info(a)], sinks=[b]),
            subtopology("2", reads=[info(b)], keeps=[info(log)]),
        ],
        "joined": [
            subtopology("0", [two], sinks=[run.name("c")]),
            subtopology("1", [four], reads=[info(run.name("c"))], together=[([0], [0])]),
        ],
        "widest": [
            subtopology("0", [two], sinks=[run.name("d")]),
            subtopology("1", [four], sinks=[run.name("e")]),
            subtopology("2", reads=[info(run.name("d")), info(run.name("e"))], together=[([], [0, 1])]),
        ],
        "set": [
            subtopology("0", [two], sinks=[run.name("f")]),
            subtopology("1", reads=[info(run.name("f"), 5)], keeps=[info(run.name("log-f"))]),
        ],
        "backwards": [
            subtopology("0", reads=[info(run.name("h"))], keeps=[info(run.name("log-h"))]),
            subtopology("1", reads=[info(run.name("g"))], sinks=[run.name("h")]),
            subtopology("2", [two], sinks=[run.name("g")]),
        ],
    }
    for name, parts in stories.items():
        await coordinated(run, group := run.name(f"g-{name}"))
        await run.prepare(beat(group, "a", 0, *parts))
        between = {
            topic.name for one in parts for topic in (*one.repartition_source_topics, *one.state_changelog_topics)
        }
        await run.settled(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=topic) for topic in between], allow_auto_topic_creation=False
            ),
            lambda answer: all(one.partitions for one in answer.topics),
        )
        await settle(run, beat(group, "a", 1), calm)
        await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))


async def grow(run: Run, topic: str, count: int) -> None:
    """Give a topic more partitions."""
    asked = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    answer = await run.prepare(CreatePartitionsRequest(topics=[asked], timeout_ms=10_000, validate_only=False))
    assert answer.results[0].error_code == 0, answer


@case("StreamsGroupHeartbeat", kafka="4.2")
async def a_source_that_grows(run: Run) -> None:
    for name, keeps in (("light", []), ("heavy", [info(run.name("log"))])):
        await coordinated(run, group := run.name(f"g-{name}"))
        topic = await source(run, f"t-{name}", partitions=2)
        await run.prepare(beat(group, "a", 0, subtopology(sources=[topic], keeps=keeps)))
        epoch = (await settle(run, beat(group, "a", 1), lambda answer: answer.active_tasks)).member_epoch
        await grow(run, topic, 3)
        await settle(run, beat(group, "a", epoch, owned={"0": [0, 1]}), lambda answer: answer.active_tasks is not None)
        await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def tasks_that_move(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run, partitions=4)
    part = subtopology(sources=[topic])
    await run.prepare(beat(group, "a", 0, part))
    first = (await settle(run, beat(group, "a", 1))).member_epoch
    await run.ask(beat(group, "b", 0, part))
    await run.ask(beat(group, "a", first, owned={"0": [0, 1, 2, 3]}))
    await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))
    await run.ask(beat(group, "b", first + 1))
    await run.ask(beat(group, "a", first))
    await run.ask(beat(group, "a", first, owned={"0": [0, 1]}))
    await run.ask(beat(group, "b", first + 1))
    await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))
    await run.ask(beat(group, "b", -1))
    await run.ask(beat(group, "a", first + 1))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def other_topologies(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run)
    part = subtopology(sources=[topic])
    await run.ask(beat(group, "a", 0, part, topology_epoch=3))
    await run.ask(beat(group, "b", 0, subtopology("1", [topic]), topology_epoch=3))
    await run.ask(beat(group, "b", 0, part, topology_epoch=4))
    await run.ask(beat(group, "b", 0, subtopology("1", [topic]), topology_epoch=2))
    await run.ask(beat(group, "b", 0, part, topology_epoch=3))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def all_are_to_end(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run)
    part = subtopology(sources=[topic])
    await run.prepare(beat(group, "a", 0, part))
    await run.prepare(beat(group, "b", 0, part))
    await run.ask(beat(group, "a", 1, shutdown_application=True))
    await run.ask(beat(group, "b", 1))
    await run.ask(beat(group, "a", -1, shutdown_application=True))
    await run.ask(beat(group, "b", 1))
    await run.ask(beat(group, "b", -1))
    await run.ask(beat(group, "c", 0, part))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def who_can_be_asked(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run, partitions=2)
    narrow = await source(run, "narrow")
    part = subtopology(sources=[topic, narrow])
    await run.ask(beat(group, "a", 0, part, user_endpoint=Endpoint(host="h", port=60000), known=-1))
    answer = await settle(run, beat(group, "a", 1, known=1))
    known = answer.endpoint_information_epoch
    await run.ask(beat(group, "a", answer.member_epoch, known=known))
    await run.ask(beat(group, "a", answer.member_epoch, known=known - 1))
    await run.ask(beat(group, "b", 0, part, known=-1))


@case("StreamsGroupHeartbeat", kafka="4.2")
async def copies_of_state(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run, partitions=2)
    part = subtopology(sources=[topic], keeps=[info(run.name("log"))])
    for count in ("3", "1"):
        asked = AlterableConfig(name="streams.num.standby.replicas", config_operation=0, value=count)
        resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[asked])
        await run.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    await run.prepare(beat(group, "a", 0, part))
    await run.prepare(beat(group, "b", 0, part))
    a = await settle(run, beat(group, "a", 1))
    b = await settle(run, beat(group, "b", 1))
    assert {len(one.standby_tasks) for one in (a, b)} == {1}, (a, b)
    await run.ask(beat(group, "b", -1))
    mine, copied = dict.fromkeys("0", a.active_tasks[0].partitions), dict.fromkeys("0", a.standby_tasks[0].partitions)
    await run.ask(beat(group, "a", a.member_epoch, owned=mine, standby=copied))
    answer = await settle(run, beat(group, "a", a.member_epoch, owned=mine), calm)
    await settle(run, beat(group, "a", answer.member_epoch, owned=mine), lambda answer: answer.active_tasks)


@case("StreamsGroupHeartbeat", kafka="4.2")
async def commits_of_members(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run, partitions=2)
    part = subtopology(sources=[topic])
    await run.prepare(beat(group, "a", 0, part))
    epoch = (await settle(run, beat(group, "a", 1))).member_epoch

    async def commit(member: str, generation: int, version: int = 9, partition: int = 0) -> None:
        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[row])]
        asked = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
        )
        await run.ask(asked, version=version)

    await commit("a", epoch)
    await commit("a", epoch, version=8)
    await commit("a", epoch - 1)
    await commit("a", epoch + 1)
    await commit("b", epoch)
    await commit("", -1)
    await run.prepare(beat(group, "b", 0, part))
    await run.ask(beat(group, "a", epoch, owned={"0": [0, 1]}))
    await run.ask(beat(group, "a", epoch, owned={"0": [0]}))
    await commit("a", epoch, partition=0)
    await commit("a", epoch, partition=1)
    row = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    await run.ask(OffsetDeleteRequest(group_id=group, topics=[row]))
    for member in "ab":
        await run.prepare(beat(group, member, -1))
    await run.ask(OffsetDeleteRequest(group_id=group, topics=[row]))
    await commit("", -1)
    await commit("a", epoch)


@case("StreamsGroupHeartbeat", kafka="4.2", alone=True)
async def other_kinds(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    topic = await source(run)
    part = subtopology(sources=[topic])
    await Member.joined(run, classic := run.name("classic"))
    await run.ask(beat(classic, "a", 0, part))
    await run.ask(beat(classic, "a", 1))
    await run.prepare(beat(group, "a", 0, part))
    await run.ask(join(group, topics=[topic]), version=9)
    newer = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="x",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    await run.ask(newer, version=1)
    await run.ask(DescribeGroupsRequest(groups=[group]))
    await run.ask(ListGroupsRequest(types_filter=["streams"], states_filter=["assigning"]))
    await run.ask(DeleteGroupsRequest(groups_names=[group]))
    await run.prepare(beat(group, "a", -1))
    await run.ask(ListGroupsRequest(types_filter=["Streams"], states_filter=["Empty"]))
    await run.ask(newer, version=1)
    await run.ask(DeleteGroupsRequest(groups_names=[group]))
    await run.ask(StreamsGroupDescribeRequest(group_ids=[group]))


@case("StreamsGroupDescribe", kafka="4.2")
async def not_there(run: Run) -> None:
    await Member.joined(run, classic := run.name("classic"))
    for names in ([classic, run.name("none")], [""], []):
        await run.ask(StreamsGroupDescribeRequest(group_ids=names))
