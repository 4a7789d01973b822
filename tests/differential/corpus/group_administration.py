"""Every administrative request about a group, for each type and state of groups.

One story for each kind of group: it is looked at, its offsets are changed, members are removed, and it is deleted;
after each step it is looked at again. Kinds that a Kafka does not have are left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.leave_group import LeaveGroupRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from anabranch.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from tests.differential.case import Run, batch, case
from tests.differential.corpus import share_groups, streams_groups
from tests.differential.corpus.consumer_groups import beat, made
from tests.differential.corpus.groups import commit, drop, fetch
from tests.differential.corpus.members import Member, coordinated, join, leave
from tests.differential.corpus.offsets import EARLIEST, LATEST, offsets

UNKNOWN_TOPIC: Final = 3


@dataclass(slots=True)
class Group:
    """A group of one kind, and what a story needs to ask about it."""

    id: str
    topic: str
    member: str = "nobody"
    instance: str | None = None
    generation: int = -1


Maker = Callable[[Run], Awaitable[Group]]


async def missing(run: Run) -> Group:
    await run.create(topic := run.name())
    await coordinated(run, group := run.name("g"))
    return Group(group, topic)


async def offsets_alone(run: Run) -> Group:
    found = await missing(run)
    await run.prepare(commit(found.id, found.topic, (0, 1)))
    return found


async def deleted(run: Run) -> Group:
    found = await offsets_alone(run)
    await run.prepare(DeleteGroupsRequest(groups_names=[found.id]))
    return found


async def classic_living(run: Run, instance: str | None = None, kind: str = "consumer", offset: int = 1) -> Group:
    found = await missing(run)
    joined = await Member.joined(run, found.id, instance=instance, protocol_type=kind, topics=[found.topic])
    made_ = Group(found.id, found.topic, joined.id, instance, joined.generation)
    if offset >= 0:
        asked = commit(found.id, found.topic, (0, offset), generation=joined.generation, member=joined.id)
        await run.prepare(asked)
    return made_


async def classic_static(run: Run) -> Group:
    return await classic_living(run, instance="one")


async def classic_syncing(run: Run) -> Group:
    """Its leader has not brought the assignment yet."""
    found = await missing(run)
    asked = join(found.id, topics=[found.topic])
    asked.member_id = (await run.prepare(asked, version=9)).member_id
    joined = await run.prepare(asked, version=9)
    assert joined.error_code == 0, joined
    return Group(found.id, found.topic, joined.member_id, None, joined.generation_id)


async def classic_left(run: Run) -> Group:
    found = await classic_living(run)
    await run.prepare(leave(found.id, (found.member, None)))
    return found


async def classic_left_without_offsets(run: Run) -> Group:
    found = await classic_living(run, offset=-1)
    await run.prepare(leave(found.id, (found.member, None)))
    return found


async def connect_living(run: Run) -> Group:
    return await classic_living(run, kind="connect")


async def connect_left(run: Run) -> Group:
    found = await classic_living(run, kind="connect")
    await run.prepare(leave(found.id, (found.member, None)))
    return found


async def consumer_living(run: Run, instance: str | None = None, offset: int = 1) -> Group:
    group = await made(run, (topic := run.name(), 1))
    joined = await run.prepare(beat(group, "a", 0, topic, instance_id=instance))
    found = Group(group, topic, "a", instance, joined.member_epoch)
    if offset >= 0:
        asked = commit(group, topic, (0, offset), generation=joined.member_epoch, member="a")
        await run.prepare(asked, version=9)
    return found


async def consumer_static(run: Run) -> Group:
    return await consumer_living(run, "one")


async def consumer_static_away(run: Run) -> Group:
    found = await consumer_living(run, "one")
    await run.prepare(beat(found.id, "a", -2, instance_id="one"))
    return found


async def consumer_left(run: Run) -> Group:
    found = await consumer_living(run)
    await run.prepare(beat(found.id, "a", -1))
    return found


async def consumer_left_without_offsets(run: Run) -> Group:
    found = await consumer_living(run, offset=-1)
    await run.prepare(beat(found.id, "a", -1))
    return found


async def share_living(run: Run) -> Group:
    group, topic, topic_id, _ = await share_groups.shared(run, b"one", b"two")
    await share_groups.handed(run, group, topic_id, 2)
    return Group(group, topic, "a")


async def share_left(run: Run) -> Group:
    group, topic, topic_id, _ = await share_groups.shared(run, b"one", b"two")
    await share_groups.handed(run, group, topic_id, 2)
    acknowledged = share_groups.acknowledge(group, "a", -1, topic_id, (0, 1, [share_groups.RELEASE]))
    await run.prepare(acknowledged)
    await run.prepare(share_groups.beat(group, "a", -1))
    return Group(group, topic, "a")


async def share_joined(run: Run) -> Group:
    """Its member has subscribed to a topic that does not exist: nothing was ever shared."""
    found = await missing(run)
    await run.prepare(share_groups.beat(found.id, "a", 0, run.name("none")))
    return Group(found.id, found.topic, "a")


async def share_joined_and_left(run: Run) -> Group:
    found = await share_joined(run)
    await run.prepare(share_groups.beat(found.id, "a", -1))
    return found


async def streams_living(run: Run) -> Group:
    await coordinated(run, group := run.name("g"))
    topic = await streams_groups.source(run)
    part = streams_groups.subtopology(sources=[topic])
    await run.prepare(streams_groups.beat(group, "a", 0, part))
    told = await streams_groups.settle(run, streams_groups.beat(group, "a", 1))
    await run.prepare(commit(group, topic, (0, 1), generation=told.member_epoch, member="a"), version=9)
    return Group(group, topic, "a", None, told.member_epoch)


async def streams_left(run: Run) -> Group:
    found = await streams_living(run)
    await run.prepare(streams_groups.beat(found.id, "a", -1))
    return found


KINDS: dict[str, list[Maker]] = {
    "": [
        missing,
        offsets_alone,
        deleted,
        classic_living,
        classic_static,
        classic_syncing,
        classic_left,
        classic_left_without_offsets,
        connect_living,
        connect_left,
    ],
    "4.0": [consumer_living, consumer_static, consumer_static_away, consumer_left, consumer_left_without_offsets],
    "4.2": [share_living, share_left, share_joined, share_joined_and_left, streams_living, streams_left],
}


async def looked_at(run: Run, found: Group) -> None:
    """Describe it as each type, list it by each filter, and look up its offsets."""
    group, topic = found.id, found.topic
    await run.ask(DescribeGroupsRequest(groups=[group], include_authorized_operations=True))
    if run.kafka >= "4":
        await run.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True))
    if run.kafka >= "4.2":
        await run.ask(ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=True))
        await run.ask(StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True))
        await run.ask(share_groups.where(group, topic))
        await run.ask(share_groups.where(group))
    await run.ask(fetch(run, group, (topic, [0])), version=9)
    await run.ask(fetch(run, group, everything=True), version=9)
    await listed(run, found)


async def listed(run: Run, found: Group) -> None:
    """List it by each filter."""
    for request in lists(run):
        answer = await run.prepare(request)
        answer.groups = [one for one in answer.groups if one.group_id == found.id]
        run.record(request, None, answer)


def lists(run: Run) -> Iterator[ListGroupsRequest]:
    """All groups, and those of each type and of each state."""
    yield ListGroupsRequest()
    types = ("classic", "consumer", "share", "streams", "Consumer") if run.kafka >= "4" else ("classic", "Classic")
    for one in types:
        yield ListGroupsRequest(types_filter=[one])
    for one in ("Empty", "stable", "Dead", "NotReady"):
        yield ListGroupsRequest(states_filter=[one])


def remove(found: Group) -> Iterator[LeaveGroupRequest]:
    """Members that an administrator removes: strangers, then the one that there is."""
    yield leave(found.id, ("", "stranger"))
    yield leave(found.id, ("stranger", None))
    yield leave(found.id, (found.member, "stranger"))
    if found.instance is not None:
        yield leave(found.id, ("stranger", found.instance))
        yield leave(found.id, ("", found.instance))
    yield leave(found.id, (found.member, None))
    yield leave(found.id)


async def administered(run: Run, found: Group) -> None:
    """Do everything to it, and look at it in between."""
    group, topic = found.id, found.topic
    await run.append(topic, batch(b"three"))
    for timestamp in (EARLIEST, LATEST):
        await run.ask(offsets(topic, (0, timestamp)))
    await looked_at(run, found)
    await run.ask(commit(group, topic, (0, 0)), version=9)
    await run.ask(commit(group, run.name("none"), (0, 0)), version=9)
    await run.ask(fetch(run, group, (topic, [0])), version=9)
    if run.kafka >= "4.2":
        await run.ask(share_groups.moved(group, topic, 1))
        await run.ask(share_groups.moved(group, run.name("none"), 1))
        await run.ask(share_groups.moved(group, topic, 1, partition=9))
        await run.ask(share_groups.where(group, topic))
        await run.ask(share_groups.forgotten(group, run.name("none")))
        await run.ask(share_groups.forgotten(group, topic))
        await run.ask(share_groups.where(group))
    await run.ask(drop(group, (run.name("none"), [0]), (topic, [7])))
    await run.ask(drop(group, (topic, [0])))
    await run.ask(fetch(run, group, everything=True), version=9)
    for request in remove(found):
        await run.ask(request)
    await looked_at(run, found)
    await run.ask(commit(group, topic, (0, 2)), version=9)
    await run.ask(drop(group, (topic, [0])))
    await run.ask(DescribeGroupsRequest(groups=[group]))
    await run.ask(DeleteGroupsRequest(groups_names=[group]))
    await looked_at(run, found)
    await run.ask(drop(group, (topic, [0])))
    await run.ask(DeleteGroupsRequest(groups_names=[group]))


async def without_topic(run: Run, found: Group) -> None:
    """Delete its only topic, and describe the group after its offsets. Responses with the topic are excluded: Kafka's
    coordinators learn of a deletion later than its brokers.
    """
    await run.prepare(DeleteTopicsRequest(topic_names=[found.topic], timeout_ms=10000), version=3)
    known = MetadataRequest(topics=[MetadataRequestTopic(name=found.topic)], allow_auto_topic_creation=False)
    await run.settled(known, lambda answer: answer.topics[0].error_code == UNKNOWN_TOPIC)
    await run.settled(fetch(run, found.id, everything=True), lambda answer: not answer.groups[0].topics, version=9)
    await run.ask(DescribeGroupsRequest(groups=[found.id], include_authorized_operations=True))
    await run.ask(fetch(run, found.id, (found.topic, [0])), version=9)
    await listed(run, found)
    await run.ask(DeleteGroupsRequest(groups_names=[found.id]))


def register(maker: Maker, kafka: str) -> None:
    """Put the stories of one kind of group into the corpus."""

    async def story(run: Run) -> None:
        await administered(run, await maker(run))

    async def loss(run: Run) -> None:
        await without_topic(run, await maker(run))

    story.__name__ = f"administered_{maker.__name__}"
    loss.__name__ = f"without_topic_{maker.__name__}"
    # When any topic is deleted, Kafka 3.9 also removes all empty groups without offsets.
    case("DescribeGroups", "5-6", kafka=kafka, alone=True)(story)
    if not maker.__name__.startswith("share"):
        case("DescribeGroups", "5", kafka=kafka)(loss)


def _register_all() -> None:
    for kafka, makers in KINDS.items():
        for maker in makers:
            register(maker, kafka)


_register_all()
