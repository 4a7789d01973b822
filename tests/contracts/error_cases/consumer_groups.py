"""Refusals of members of KIP-848 groups."""

from __future__ import annotations

from typing import Any

from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from anabranch.protocol.errors import ErrorCode
from tests.contracts.error_cases.groups import committing, coordinator
from tests.contracts.error_codes import World, case


def beat(group: str, member_id: str = "m", epoch: int = 0, **more: Any) -> ConsumerGroupHeartbeatRequest:
    joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    values = (joining if epoch == 0 else {}) | more
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **values)


async def member(world: World, group: str, member_id: str = "m", **more: Any) -> tuple[int, int]:
    """The coordinator of a group, and the epoch of its only member."""
    at = await coordinator(world, group)
    joined = await world.call(beat(group, member_id, **more), at=at)
    assert joined.error_code == ErrorCode.NONE, joined
    return at, joined.member_epoch


@case(ErrorCode.INVALID_REQUEST, kafka_version="4.1")
async def join_without_owned_partitions(world: World) -> Any:
    """ConsumerGroupHeartbeat of a joining member whose TopicPartitions are null."""
    group = world.fresh()
    return await world.call(beat(group, topic_partitions=None), at=await coordinator(world, group))


@case(ErrorCode.INVALID_REGULAR_EXPRESSION, kafka_version="4.1")
async def subscribe_by_an_invalid_expression(world: World) -> Any:
    """ConsumerGroupHeartbeat v1 that subscribes by an expression that is none."""
    group = world.fresh()
    return await world.call(beat(group, subscribed_topic_regex="("), at=await coordinator(world, group))


@case(ErrorCode.UNSUPPORTED_ASSIGNOR, kafka_version="4.1")
async def join_with_an_unknown_assignor(world: World) -> Any:
    """ConsumerGroupHeartbeat that asks for an assignor that the broker has not."""
    group = world.fresh()
    return await world.call(beat(group, server_assignor="sticky"), at=await coordinator(world, group))


@case(ErrorCode.FENCED_MEMBER_EPOCH, kafka_version="4.1")
async def heartbeat_with_a_later_member_epoch(world: World) -> Any:
    """ConsumerGroupHeartbeat with a higher epoch than the member's."""
    group = world.fresh()
    at, epoch = await member(world, group)
    return await world.call(beat(group, epoch=epoch + 1), at=at)


@case(ErrorCode.UNRELEASED_INSTANCE_ID, kafka_version="4.1")
async def join_with_an_instance_id_in_use(world: World) -> Any:
    """ConsumerGroupHeartbeat of a newcomer whose instance id a member has that did not leave."""
    group = world.fresh()
    at, _ = await member(world, group, instance_id="i")
    return await world.call(beat(group, "other", instance_id="i"), at=at)


@case(ErrorCode.STALE_MEMBER_EPOCH, kafka_version="4.1")
async def commit_at_another_epoch(world: World) -> Any:
    """OffsetCommit v9 of a member with an epoch that is not its own."""
    group, topic = world.fresh(), await world.topic()
    at, epoch = await member(world, group)
    return await world.call(committing(group, topic, member_id="m", generation_id_or_member_epoch=epoch + 1), at=at)


@case(ErrorCode.UNKNOWN_MEMBER_ID, kafka_version="4.1")
async def fetch_offsets_as_an_unknown_member(world: World) -> Any:
    """OffsetFetch v9 in the name of a member that the group has not."""
    group = world.fresh()
    at, _ = await member(world, group)
    asked = OffsetFetchRequestGroup(group_id=group, member_id="x", member_epoch=1, topics=None)
    return await world.call(OffsetFetchRequest(groups=[asked]), at=at)


@case(ErrorCode.GROUP_ID_NOT_FOUND, kafka_version="4.1")
async def describe_an_unknown_group(world: World) -> Any:
    """ConsumerGroupDescribe of an unknown group."""
    group = world.fresh()
    return await world.call(
        ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
        at=await coordinator(world, group),
    )


@case(ErrorCode.UNSUPPORTED_VERSION)
async def consumer_group_heartbeat_when_disabled(world: World) -> Any:
    """ConsumerGroupHeartbeat v0 to a node that shows itself as Kafka 3.9."""
    group = world.fresh()
    return await world.call(beat(group), at=await coordinator(world, group))
