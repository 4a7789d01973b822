"""Refusals of classic members, and of requests about groups."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from anabranch.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from anabranch.protocol.apis.sync_group import SyncGroupRequest
from anabranch.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import until
from tests.contracts.error_codes import World, case

SESSION_MS = 30_000


def joining(group: str, member_id: str = "", **more: Any) -> JoinGroupRequest:
    topics = more.pop("topics", ["t"])
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=topics, user_data=None))
    values = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS, "protocol_type": "consumer"} | more
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        **values,
    )


def is_ready(groups: GroupCoordinator) -> bool:
    """Whether a coordinator has something to coordinate, and knows it."""
    return bool(groups.table.leadership.shards) and not groups.loading


async def coordinator(world: World, group: str) -> int:
    """The node that coordinates a group, once it has loaded it."""
    while True:
        found = (await world.call(FindCoordinatorRequest(coordinator_keys=[group]))).coordinators[0]
        if found.error_code == ErrorCode.NONE:
            groups = world.cluster.nodes[found.node_id].services.groups
            await until(partial(is_ready, groups))
            return int(found.node_id)


async def member(world: World, group: str, at: int, **more: Any) -> tuple[str, int]:
    """One member of a group that is Stable, and its generation."""
    joined = await world.call(joining(group, **more), at=at, version=3)
    synced = await world.call(
        SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[]
        ),
        at=at,
        version=4,
    )
    assert joined.error_code == synced.error_code == ErrorCode.NONE
    return joined.member_id, joined.generation_id


def committing(group: str, topic: str, metadata: str = "", **more: Any) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=metadata)
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])], **more)


def beating(group: str, member_id: str, generation: int, instance_id: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )


@case(ErrorCode.MEMBER_ID_REQUIRED)
async def join_without_an_id(world: World) -> Any:
    """JoinGroup v9 of a dynamic member that has no member id yet."""
    group = world.fresh()
    return await world.call(joining(group), at=await coordinator(world, group))


@case(ErrorCode.INVALID_GROUP_ID)
async def join_the_empty_group_id(world: World) -> Any:
    """JoinGroup of the group ""."""
    return await world.call(joining(""))


@case(ErrorCode.INVALID_SESSION_TIMEOUT)
async def join_with_a_short_session_timeout(world: World) -> Any:
    """JoinGroup with a session timeout below group.min.session.timeout.ms."""
    group = world.fresh()
    return await world.call(joining(group, session_timeout_ms=1), at=await coordinator(world, group))


@case(ErrorCode.UNKNOWN_MEMBER_ID)
async def heartbeat_of_an_unknown_member(world: World) -> Any:
    """Heartbeat of a member id that the group does not know."""
    group = world.fresh()
    return await world.call(beating(group, "nobody", 1), at=await coordinator(world, group))


@case(ErrorCode.ILLEGAL_GENERATION)
async def heartbeat_with_an_earlier_generation(world: World) -> Any:
    """Heartbeat of a member under an earlier generation."""
    group = world.fresh()
    at = await coordinator(world, group)
    member_id, generation = await member(world, group, at)
    return await world.call(beating(group, member_id, generation - 1), at=at)


@case(ErrorCode.REBALANCE_IN_PROGRESS)
async def heartbeat_during_a_rebalance(world: World) -> Any:
    """Heartbeat of a member while a newcomer waits for it to join again."""
    group = world.fresh()
    at = await coordinator(world, group)
    member_id, generation = await member(world, group, at)
    waiting = asyncio.ensure_future(world.call(joining(group), at=at, version=3, client="second"))
    known = world.cluster.nodes[at].services.groups.group(group)
    assert known is not None
    await until(lambda: known.state.value == "PreparingRebalance")
    answer = await world.call(beating(group, member_id, generation), at=at)
    await world.call(joining(group, member_id), at=at, version=3)
    await waiting
    return answer


@case(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
async def join_with_another_protocol_type(world: World) -> Any:
    """JoinGroup with the protocol type "connect" of a group of consumers."""
    group = world.fresh()
    at = await coordinator(world, group)
    await member(world, group, at)
    return await world.call(joining(group, protocol_type="connect"), at=at, client="second")


@case(ErrorCode.FENCED_INSTANCE_ID)
async def heartbeat_of_a_replaced_static_member(world: World) -> Any:
    """Heartbeat of a static member whose instance has come back under another member id."""
    group = world.fresh()
    at = await coordinator(world, group)
    joined = await world.call(joining(group, group_instance_id="i"), at=at)
    await world.call(joining(group, group_instance_id="i"), at=at)
    return await world.call(beating(group, joined.member_id, joined.generation_id, "i"), at=at)


@case(ErrorCode.GROUP_MAX_SIZE_REACHED, group_max_size="1")
async def join_a_full_group(world: World) -> Any:
    """JoinGroup of a second member where group.max.size is 1."""
    group = world.fresh()
    at = await coordinator(world, group)
    await member(world, group, at)
    return await world.call(joining(group), at=at, client="second")


@case(ErrorCode.NOT_COORDINATOR)
async def heartbeat_at_another_node(world: World) -> Any:
    """Heartbeat at a node that does not coordinate the group."""
    group = world.fresh()
    at = await coordinator(world, group)
    other = next(node for node in world.cluster.nodes if node != at)
    return await world.call(beating(group, "m", 1), at=other)


@case(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
async def join_while_the_coordinator_loads(world: World) -> Any:
    """JoinGroup between a coordinator's election and the end of its load."""
    group = world.fresh()
    at = await coordinator(world, group)
    groups = world.cluster.nodes[at].services.groups
    shard = groups.table.leadership.shard_of(group)
    shard.loading = True
    try:
        return await world.call(joining(group), at=at)
    finally:
        shard.loading = False


@case(ErrorCode.COORDINATOR_NOT_AVAILABLE)
async def find_a_coordinator_of_share_groups(world: World) -> Any:
    """FindCoordinator v6 of a share group: Kafka 3.9 has no coordinator for those with ZooKeeper."""
    return await world.call(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"]))


@case(ErrorCode.NON_EMPTY_GROUP)
async def delete_a_group_with_members(world: World) -> Any:
    """DeleteGroups of a group that has a member."""
    group = world.fresh()
    at = await coordinator(world, group)
    await member(world, group, at)
    return await world.call(DeleteGroupsRequest(groups_names=[group]), at=at)


@case(ErrorCode.GROUP_ID_NOT_FOUND)
async def delete_an_unknown_group(world: World) -> Any:
    """DeleteGroups of an unknown group."""
    group = world.fresh()
    return await world.call(DeleteGroupsRequest(groups_names=[group]), at=await coordinator(world, group))


@case(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
async def delete_an_offset_of_a_subscribed_topic(world: World) -> Any:
    """OffsetDelete of a topic that a member of the group consumes."""
    group, topic = world.fresh(), await world.topic()
    at = await coordinator(world, group)
    await member(world, group, at, topics=[topic])
    rows = [OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    return await world.call(OffsetDeleteRequest(group_id=group, topics=rows), at=at)


@case(ErrorCode.OFFSET_METADATA_TOO_LARGE)
async def commit_with_long_metadata(world: World) -> Any:
    """OffsetCommit with more metadata than offset.metadata.max.bytes."""
    group, topic = world.fresh(), await world.topic()
    return await world.call(committing(group, topic, "x" * 4097), at=await coordinator(world, group))


@case(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, offset_metadata_max_bytes="100000000")
async def commit_larger_than_a_batch(world: World) -> Any:
    """OffsetCommit with metadata larger than the largest batch of __consumer_offsets."""
    group, topic = world.fresh(), await world.topic()
    at = await coordinator(world, group)
    await shrink_batches(world, "__consumer_offsets", 16_000)
    try:
        return await world.call(committing(group, topic, "x" * 32_000), at=at)
    finally:
        await shrink_batches(world, "__consumer_offsets", 1_048_588)


async def shrink_batches(world: World, topic: str, size: int) -> None:
    """Set max.message.bytes of a topic, and wait until every node goes by it."""
    change = AlterableConfig(name="max.message.bytes", config_operation=0, value=str(size))
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    response = await world.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert response.responses[0].error_code == ErrorCode.NONE, response
    configs = [node.services.topic_configs for node in world.cluster.nodes.values()]
    await until(lambda: all(one.get(topic).max_message_bytes == size for one in configs))


@case(ErrorCode.UNSTABLE_OFFSET_COMMIT)
async def fetch_offsets_of_an_open_transaction(world: World) -> Any:
    """OffsetFetch v7 that requires stable offsets, while a transaction has one open."""
    group, topic = world.fresh(), await world.topic()
    at = await coordinator(world, group)
    await world.call(committing(group, topic), at=at)
    offsets = world.cluster.nodes[at].services.groups.offsets.of(group)
    offsets.stage(1, (topic, 0), CommittedOffset(offset=2, commit_timestamp_ms=0))
    asked = [
        OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
    ]
    try:
        return await world.call(OffsetFetchRequest(groups=asked, require_stable=True), at=at)
    finally:
        offsets.settle(1, commit=False)
