"""OffsetCommit, OffsetFetch, OffsetDelete, ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest
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
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.differential.case import Run, case
from tests.differential.corpus.members import Member


async def coordinator(run: Run, group: str) -> None:
    """Wait until the group has one."""
    await run.settled(
        FindCoordinatorRequest(coordinator_keys=[group]), lambda answer: answer.coordinators[0].error_code == 0
    )


def commit(
    group: str,
    name: str,
    *rows: tuple[int, int],
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    metadata: str | None = "",
    epoch: int = -1,
) -> OffsetCommitRequest:
    """Rows: partition, offset."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )
        for index, offset in rows
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions)],
    )


def fetch(run: Run, group: str, *topics: tuple[str, list[int]], everything: bool = False) -> OffsetFetchRequest:
    """Committed offsets, in the form of every version."""
    old = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics]
    new = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics]
    return OffsetFetchRequest(
        group_id=group,
        topics=None if everything else old,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None if everything else new)],
    )


@case("OffsetCommit", "1-9")
async def without_members(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    await coordinator(run, group := run.name("g"))
    await run.ask(commit(group, name, (0, 10), (1, 20), metadata="note", epoch=0))
    await run.ask(commit(group, name, (7, 1), (0, 11)))
    await run.ask(commit(group, run.name("none"), (0, 1)))
    await run.ask(commit(group, name, (0, -1)))
    await run.ask(commit(group, name, (0, 5), metadata=None))
    await run.ask(commit(group, name, (0, 5), metadata="x" * 5000))
    await run.ask(fetch(run, group, (name, [0, 1])), version=9 if run.version == 9 else 5)


@case("OffsetCommit", "1-9")
async def with_unknown_members(run: Run) -> None:
    await run.create(name := run.name())
    await coordinator(run, group := run.name("g"))
    await run.ask(commit(group, name, (0, 1), generation=1, member="m"))
    await run.ask(commit(group, name, (0, 1), generation=-1, member="m"))
    await run.ask(commit(group, name, (0, 1), generation=1, member=""))
    await run.ask(commit("", name, (0, 1)))
    await run.ask(OffsetCommitRequest(group_id=group, topics=[]))


@case("OffsetCommit", "0-9")
async def inside_a_group(run: Run) -> None:
    await run.create(name := run.name())
    member = await Member.joined(run, group := run.name("g"))
    await run.ask(commit(group, name, (0, 1), generation=member.generation, member=member.id))
    await run.ask(commit(group, name, (0, 2), generation=member.generation + 1, member=member.id))
    await run.ask(commit(group, name, (0, 2), generation=member.generation - 1, member=member.id))
    await run.ask(commit(group, name, (0, 2), generation=member.generation, member="stranger"))
    await run.ask(commit(group, name, (0, 2)))
    if run.version >= 7:
        await run.ask(commit(group, name, (0, 2), generation=member.generation, member=member.id, instance="i"))


@case("OffsetFetch", "1-9")
async def committed(run: Run) -> None:
    await run.create(name := run.name(), partitions=3)
    await coordinator(run, group := run.name("g"))
    await run.prepare(commit(group, name, (0, 10), (1, 20), metadata="note", epoch=0))
    await run.ask(fetch(run, group, (name, [0, 1, 2])))
    await run.ask(fetch(run, group, (name, [1, 1])))
    await run.ask(fetch(run, group, (run.name("none"), [0]), (name, [0])))
    await run.ask(fetch(run, group))
    await run.ask(fetch(run, run.name("other"), (name, [0])))
    await run.ask(fetch(run, "", (name, [0])))
    if run.version >= 2:
        await run.ask(fetch(run, group, everything=True))
        await run.ask(fetch(run, run.name("other"), everything=True))


@case("OffsetFetch", "7-9")
async def stable(run: Run) -> None:
    await run.create(name := run.name())
    await coordinator(run, group := run.name("g"))
    await run.prepare(commit(group, name, (0, 10)))
    asked = fetch(run, group, (name, [0]))
    asked.require_stable = True
    await run.ask(asked)


@case("OffsetFetch", "8-9")
async def of_several_groups(run: Run) -> None:
    await run.create(name := run.name())
    await coordinator(run, group := run.name("g"))
    await run.prepare(commit(group, name, (0, 10)))
    asked = fetch(run, group, (name, [0]))
    asked.groups += fetch(run, run.name("other"), (name, [0])).groups
    asked.groups += fetch(run, group, everything=True).groups
    await run.ask(asked)
    if run.version == 9:
        asked = fetch(run, group, (name, [0]))
        asked.groups[0].member_id, asked.groups[0].member_epoch = "m", 3
        await run.ask(asked)


@case("OffsetFetch", "0")
async def in_zookeeper(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(fetch(run, run.name("g"), (name, [0])))


@case("OffsetCommit", "0")
async def to_zookeeper(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(commit(run.name("g"), name, (0, 3)))
    await run.ask(fetch(run, run.name("g"), (name, [0])), version=0)


def drop(group: str, *topics: tuple[str, list[int]]) -> OffsetDeleteRequest:
    """Forget offsets."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics
        ],
    )


@case("OffsetDelete")
async def forgotten(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    await coordinator(run, group := run.name("g"))
    await run.ask(drop(group, (name, [0])))
    await run.prepare(commit(group, name, (0, 10), (1, 20)))
    await run.ask(drop(group, (name, [0, 7]), (run.name("none"), [0])))
    await run.ask(fetch(run, group, (name, [0, 1])))
    await run.ask(drop(group, (name, [0])))
    await run.ask(drop("", (name, [0])))
    await run.ask(drop(group))


@case("OffsetDelete")
async def of_a_group_with_members(run: Run) -> None:
    await run.create(name := run.name())
    await run.create(other := run.name("other"))
    member = await Member.joined(run, group := run.name("g"), topics=[name])
    for topic in (name, other):
        await run.prepare(commit(group, topic, (0, 1), generation=member.generation, member=member.id))
    await run.ask(drop(group, (name, [0]), (other, [0])))


@case("OffsetDelete")
async def of_a_group_of_another_kind(run: Run) -> None:
    await run.create(name := run.name())
    await Member.joined(run, group := run.name("g"), protocol_type="other")
    await run.ask(drop(group, (name, [0])))


def own_groups(run: Run, answer: object) -> None:
    """Other cases have groups too: leave them out."""
    mine = run.name("")
    answer.groups = [one for one in answer.groups if one.group_id.startswith(mine)]  # type: ignore[attr-defined]


@case("ListGroups")
async def every_state(run: Run) -> None:
    await run.create(name := run.name())
    await coordinator(run, run.name("x"))
    await Member.joined(run, run.name("stable"))
    await Member.joined(run, run.name("kind"), protocol_type="other")
    await run.prepare(commit(run.name("empty"), name, (0, 1)))
    requests = [ListGroupsRequest()]
    if run.version >= 4:
        filters = ["Stable"], ["Empty"], ["stable"], ["Empty", "Stable"], ["Nonsense"], ["Dead"], ["Assigning"]
        requests += [ListGroupsRequest(states_filter=one) for one in filters]
    if run.version >= 5:
        types = ["classic"], ["Classic"], ["consumer"], ["consumer", "classic"], ["nonsense"], ["unknown"]
        requests += [ListGroupsRequest(types_filter=one) for one in types]
    for request in requests:
        answer = await run.prepare(request)
        own_groups(run, answer)
        run.record(request, None, answer)


@case("DescribeGroups")
async def described(run: Run) -> None:
    await run.create(name := run.name())
    await coordinator(run, run.name("x"))
    stable, empty = run.name("stable"), run.name("empty")
    await Member.joined(run, stable)
    await run.prepare(commit(empty, name, (0, 1)))
    await run.ask(DescribeGroupsRequest(groups=[stable, empty, run.name("none")]))
    await run.ask(DescribeGroupsRequest(groups=[stable, stable]))
    await run.ask(DescribeGroupsRequest(groups=[]))
    if run.version >= 3:
        await run.ask(DescribeGroupsRequest(groups=[stable, run.name("none")], include_authorized_operations=True))


@case("DescribeGroups", "4-5")
async def with_a_static_member(run: Run) -> None:
    await Member.joined(run, group := run.name("g"), instance="first")
    await run.ask(DescribeGroupsRequest(groups=[group]))


@case("DeleteGroups")
async def deleted(run: Run) -> None:
    await run.create(name := run.name())
    await coordinator(run, empty := run.name("empty"))
    await run.prepare(commit(empty, name, (0, 1)))
    await Member.joined(run, stable := run.name("stable"))
    await run.ask(DeleteGroupsRequest(groups_names=[empty, stable, run.name("none")]))
    await run.ask(DeleteGroupsRequest(groups_names=[empty]))
    await run.ask(DeleteGroupsRequest(groups_names=[stable, stable]))
    await run.ask(DeleteGroupsRequest(groups_names=[]))
    await run.ask(fetch(run, empty, (name, [0])))


@case("ConsumerGroupHeartbeat")
async def the_next_protocol(run: Run) -> None:
    await coordinator(run, group := run.name("g"))
    await run.ask(
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
    )


@case("ConsumerGroupDescribe")
async def groups_of_the_next_protocol(run: Run) -> None:
    await Member.joined(run, group := run.name("g"))
    await run.ask(ConsumerGroupDescribeRequest(group_ids=[group, run.name("none")], include_authorized_operations=True))
    await run.ask(ConsumerGroupDescribeRequest(group_ids=[], include_authorized_operations=False))
