"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.differential.case import Run, case
from tests.differential.corpus.members import Member, coordinated, join

Owned = tuple[bytes, Iterable[int]]


async def topic_id(run: Run, topic: str) -> bytes:
    """The id by which members name a topic."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    known = await run.prepare(asked, version=12)
    found: bytes = known.topics[0].topic_id
    return found


def beat(
    group: str, member: str = "a", epoch: int = 0, *topics: str, owned: Iterable[Owned] | None = None, **more: Any
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat; with topics it is a full one, as of a member that joins."""
    if topics:
        more = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": list(topics)} | more
        owned = owned or ()
    rows = None if owned is None else [TopicPartitions(topic_id=one, partitions=list(some)) for one, some in owned]
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, topic_partitions=rows, **more
    )


def describe(*groups: str) -> ConsumerGroupDescribeRequest:
    """Describe all groups."""
    return ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)


async def made(run: Run, *topics: tuple[str, int]) -> str:
    """Make topics, wait until the coordinator of groups knows them, too, and find the name of a group."""
    for topic, count in topics:
        await run.create(topic, partitions=count)
    await coordinated(run, group := run.name("looks-for-topics"))
    probe = beat(group, "probe", 0, *(topic for topic, _ in topics))

    def known(answer: Any) -> bool:
        if answer.error_code == 0:
            probe.member_epoch = answer.member_epoch
        rows = answer.assignment.topic_partitions if answer.assignment else []
        return sum(len(row.partitions) for row in rows) == sum(count for _, count in topics)

    await run.settled(probe, known)
    await run.prepare(beat(group, "probe", -1))
    names = [MetadataRequestTopic(name=topic) for topic, _ in topics]
    await run.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False))  # their ids get names in this order
    await coordinated(run, group := run.name("g"))
    return group


@case("ConsumerGroupHeartbeat", kafka="4.0")
async def not_valid(run: Run) -> None:
    group = await made(run, (topic := run.name(), 1))
    mine = (await topic_id(run, topic), [0])
    await run.ask(beat("", "a", 0, topic))
    await run.ask(beat(group, "a", 0, topic, instance_id=""))
    await run.ask(beat(group, "a", 0, topic, rack_id=""))
    await run.ask(beat(group, "a", 0, topic, rebalance_timeout_ms=-1))
    await run.ask(beat(group, "a", 0, topic, owned=[mine]))
    await run.ask(beat(group, "a", 0, rebalance_timeout_ms=1000, subscribed_topic_names=[topic]))
    await run.ask(beat(group, "a", 0, rebalance_timeout_ms=1000, owned=[]))
    await run.ask(beat(group, "a", 0, topic, server_assignor="sticky"))
    await run.ask(beat(group, "a", -3))
    await run.ask(beat(group, "a", -2))
    await run.ask(beat(group, "", -1))
    await run.ask(beat(group, "a", 1))
    await run.ask(beat(group, "a", -1))
    await run.ask(beat(group, "a", -2, instance_id="one"))
    await run.ask(describe(group))


@case("ConsumerGroupHeartbeat", "1", kafka="4.0")
async def without_an_id(run: Run) -> None:
    group = await made(run, (topic := run.name(), 1))
    await run.ask(beat(group, "", 0, topic))


@case("ConsumerGroupHeartbeat", kafka="4.0")
async def one_member(run: Run) -> None:
    group = await made(run, (topic := run.name(), 3))
    mine = await topic_id(run, topic)
    first = await run.ask(beat(group, "a", 0, topic))
    epoch = first.member_epoch
    await run.ask(describe(group))
    await run.ask(beat(group, "a", epoch))
    await run.ask(beat(group, "a", epoch, owned=[(mine, range(3))]))
    await run.ask(beat(group, "a", epoch, topic, owned=[(mine, range(3))]))
    await run.ask(beat(group, "a", epoch + 1))
    await run.ask(beat(group, "a", epoch - 1, owned=[(mine, range(3))]))
    await run.ask(beat(group, "a", epoch - 1))
    await run.ask(beat(group, "b", epoch))
    await run.ask(beat(group, "a", 0, topic))
    await run.ask(beat(group, "b", -1))
    await run.ask(DeleteGroupsRequest(groups_names=[group]))
    await run.ask(beat(group, "a", -1))
    await run.ask(beat(group, "a", -1))
    await run.ask(describe(group))
    await run.ask(DeleteGroupsRequest(groups_names=[group]))
    await run.ask(describe(group))


@case("ConsumerGroupHeartbeat", kafka="4.0")
async def a_second_member(run: Run) -> None:
    group = await made(run, (topic := run.name(), 4))
    mine = await topic_id(run, topic)
    a = (await run.ask(beat(group, "a", 0, topic))).member_epoch
    b = (await run.ask(beat(group, "b", 0, topic))).member_epoch
    await run.ask(describe(group))
    told = await run.ask(beat(group, "a", a, owned=[(mine, range(4))]))
    kept = [one for row in told.assignment.topic_partitions for one in row.partitions]
    await run.ask(beat(group, "b", b))
    await run.ask(beat(group, "a", a))
    await run.ask(describe(group))
    a = (await run.ask(beat(group, "a", a, owned=[(mine, kept)]))).member_epoch
    await run.ask(beat(group, "b", b))
    await run.ask(beat(group, "a", a))
    await run.ask(describe(group))
    await run.ask(beat(group, "a", a - 1, owned=[(mine, kept)]))
    await run.ask(beat(group, "a", a - 1, owned=[(mine, range(4))]))
    await run.ask(beat(group, "b", -1))
    await run.ask(beat(group, "a", a))
    await run.ask(describe(group))


@case("ConsumerGroupHeartbeat", kafka="4.0")
async def assignors(run: Run) -> None:
    topics = [run.name("one"), run.name("two")]
    group = await made(run, *((topic, 4) for topic in topics))
    a = (await run.ask(beat(group, "a", 0, *topics, server_assignor="range"))).member_epoch
    await run.ask(beat(group, "b", 0, *topics, server_assignor="range"))
    await run.ask(describe(group))
    await run.ask(beat(group, "c", 0, topics[0], server_assignor="uniform"))
    await run.ask(describe(group))
    await run.ask(beat(group, "a", a, server_assignor="uniform"))


@case("ConsumerGroupHeartbeat", kafka="4.0")
async def static_members(run: Run) -> None:
    group = await made(run, (topic := run.name(), 2))
    epoch = (await run.ask(beat(group, "a", 0, topic, instance_id="one"))).member_epoch
    await run.ask(beat(group, "b", 0, topic, instance_id="one"))
    await run.ask(beat(group, "b", epoch, instance_id="one"))
    await run.ask(beat(group, "a", epoch, instance_id="two"))
    await run.ask(beat(group, "a", -2, instance_id="one"))
    await run.ask(describe(group))
    await run.ask(beat(group, "a", epoch, instance_id="one"))
    await run.ask(beat(group, "b", 0, topic, instance_id="one"))
    await run.ask(describe(group))
    await run.ask(beat(group, "a", epoch, instance_id="one"))
    await run.ask(beat(group, "a", -1, instance_id="one"))
    await run.ask(beat(group, "b", -1, instance_id="one"))
    await run.ask(describe(group))


@case("ConsumerGroupHeartbeat", kafka="4.0")
async def other_topics(run: Run) -> None:
    one, two = run.name("one"), run.name("two")
    group = await made(run, (one, 2), (two, 1))
    mine = await topic_id(run, one)
    epoch = (await run.ask(beat(group, "a", 0, one, run.name("none")))).member_epoch
    await run.ask(beat(group, "a", epoch, subscribed_topic_names=[two]))
    await run.ask(describe(group))
    await run.ask(beat(group, "a", epoch, owned=[(mine, [0])]))
    epoch = (await run.ask(beat(group, "a", epoch, owned=[]))).member_epoch
    await run.ask(beat(group, "a", epoch, subscribed_topic_names=[]))
    await run.ask(beat(group, "a", epoch, owned=[]))
    await run.ask(describe(group))


@case("ConsumerGroupHeartbeat", kafka="4.0")
async def topics_that_grow_and_go(run: Run) -> None:
    one, two = run.name("one"), run.name("two")
    group = await made(run, (one, 1), (two, 1))
    asked = beat(group, "a", 0, one, two)
    await run.ask(asked)

    def has(count: int) -> Any:
        def here(answer: Any) -> bool:
            if answer.error_code == 0:
                asked.member_epoch = answer.member_epoch
            rows = answer.assignment.topic_partitions if answer.assignment else []
            asked.topic_partitions = [TopicPartitions(topic_id=r.topic_id, partitions=r.partitions) for r in rows]
            return sum(len(row.partitions) for row in rows) == count

        return here

    grown = CreatePartitionsTopic(name=one, count=3, assignments=None)
    await run.prepare(CreatePartitionsRequest(topics=[grown], timeout_ms=5000, validate_only=False))
    await run.until(asked, has(4))
    await run.prepare(DeleteTopicsRequest(topics=[DeleteTopicState(name=two)], topic_names=[two], timeout_ms=5000))
    await run.settled(asked, has(3))
    await run.ask(describe(group))


@case("ConsumerGroupHeartbeat", "1", kafka="4.0")
async def expressions(run: Run) -> None:
    group = await made(run, (topic := run.name("some"), 2))
    asks = {"rebalance_timeout_ms": 30_000, "owned": []}
    for wrong in ("(", "", "*"):
        await run.ask(beat(group, "b", 0, subscribed_topic_regex=wrong, **asks))
    joined = await run.ask(beat(group, "a", 0, subscribed_topic_regex=topic.replace("some", "s.*"), **asks))
    await run.settled(describe(group), lambda answer: answer.groups[0].group_epoch > 1)
    epoch = (await run.ask(beat(group, "a", joined.member_epoch))).member_epoch
    await run.ask(describe(group))
    await run.ask(beat(group, "a", epoch, subscribed_topic_regex=""))
    await run.ask(beat(group, "a", -1))
    await run.ask(describe(group))


@case("ConsumerGroupDescribe", kafka="4.0")
async def other_kinds(run: Run) -> None:
    group = await made(run, (topic := run.name(), 1))
    await run.ask(beat(group, "a", 0, topic))
    await coordinated(run, classic := run.name("classic"))
    await Member.joined(run, classic, topics=[topic])
    await run.ask(describe(group, classic, run.name("none")))
    await run.ask(describe(group, group))
    await run.ask(describe(""))
    await run.ask(DescribeGroupsRequest(groups=[group, classic]))
    mine = [group, classic]
    for kinds in ([], ["consumer"], ["classic"], ["Consumer"], ["nonsense"]):
        answer = await run.prepare(ListGroupsRequest(types_filter=kinds), version=5)
        answer.groups = [one for one in answer.groups if one.group_id in mine]
        run.record(ListGroupsRequest(types_filter=kinds), 5, answer)


@case("ConsumerGroupDescribe", kafka="4.0")
async def classic_members(run: Run) -> None:
    group = await made(run, (topic := run.name(), 2))
    former = await Member.joined(run, group, topics=[topic])
    await run.ask(beat(group, "new", 0, topic))
    await run.ask(describe(group))
    beats = HeartbeatRequest(group_id=group, generation_id=former.generation, member_id=former.id)
    await run.ask(beats)
    await run.ask(join(group, former.id, protocols=("nonsense",), topics=[topic]))
    await run.ask(beat(group, "new", -1))
    await run.ask(describe(group))
    await run.ask(DescribeGroupsRequest(groups=[group]))


def commit(group: str, topic: str, member: str, epoch: int) -> OffsetCommitRequest:
    """One offset."""
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )


@case("ConsumerGroupHeartbeat", "1", kafka="4.0")
async def offsets_are_fenced(run: Run) -> None:
    group = await made(run, (topic := run.name(), 1))
    epoch = (await run.ask(beat(group, "a", 0, topic))).member_epoch
    for member, said, version in (
        ("a", epoch, 9),
        ("a", epoch + 1, 9),
        ("a", epoch - 1, 9),
        ("a", epoch, 8),
        ("b", epoch, 9),
        ("", -1, 9),
        ("", -1, 8),
    ):
        await run.ask(commit(group, topic, member, said), version=version)
    for member, said in (("a", epoch), ("a", epoch + 1), ("a", epoch - 1), ("b", epoch), (None, -1)):
        row = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=said, topics=[row])
        await run.ask(OffsetFetchRequest(groups=[asked], require_stable=False), version=9)
    await run.prepare(beat(group, "a", -1))
    await run.ask(commit(group, topic, "", -1), version=9)
    await run.ask(commit(group, topic, "a", epoch), version=9)
