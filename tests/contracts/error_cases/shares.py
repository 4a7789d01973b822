"""Refusals of share group members and old leaders (KIP-932)."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.broker.coordinators.share_partitions.share_coordinator import name_of
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.protocol.apis import initialize_share_group_state as initializing
from anabranch.protocol.apis import share_acknowledge as acknowledging
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from anabranch.protocol.errors import ErrorCode
from tests.contracts.error_codes import World, case


def fetch(world: World, topic: str, epoch: int, member: str = "m", group: str = "g") -> ShareFetchRequest:
    rows = [FetchPartition(partition_index=0, acknowledgement_batches=[])]
    return ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic_id=world.topic_id(topic), partitions=rows)],
        forgotten_topics_data=[],
    )


async def initialize(world: World, key: str, topic: str, group: str, epoch: int) -> Any:
    """Let a life of a group in a topic's only partition begin."""
    row = initializing.PartitionData(partition=0, state_epoch=epoch, start_offset=0)
    data = initializing.InitializeStateData(topic_id=world.topic_id(topic), partitions=[row])
    asked = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    while True:
        found = (await world.call(asked, version=6)).coordinators[0]
        if found.error_code == ErrorCode.NONE:
            request = initializing.InitializeShareGroupStateRequest(group_id=group, topics=[data])
            row_of = (await world.call(request, at=found.node_id)).results[0].partitions[0]
            if row_of.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return row_of
        await asyncio.sleep(0.01)


def key_of(world: World, topic: str, group: str) -> ShareKey:
    return ShareKey(group, world.topic_id(topic), 0)


@case(ErrorCode.FENCED_STATE_EPOCH, kafka_version="4.2")
async def initialize_with_an_old_state_epoch(world: World) -> Any:
    """InitializeShareGroupState with a lower state epoch than the partition's."""
    topic, group = await world.topic(), world.fresh()
    key = name_of(key_of(world, topic, group))
    assert (await initialize(world, key, topic, group, 5)).error_code == ErrorCode.NONE
    return await initialize(world, key, topic, group, 4)


@case(ErrorCode.SHARE_SESSION_NOT_FOUND, kafka_version="4.2")
async def share_fetch_in_an_unknown_session(world: World) -> Any:
    """ShareFetch with an epoch that is not 0 of a member that has opened no share session."""
    topic = await world.topic()
    return await world.call(fetch(world, topic, 1, member=world.fresh()), at=world.leader(topic))


@case(ErrorCode.INVALID_SHARE_SESSION_EPOCH, kafka_version="4.2")
async def share_fetch_with_a_wrong_session_epoch(world: World) -> Any:
    """ShareFetch with another epoch than the one after the last."""
    topic, member = await world.topic(), world.fresh()
    at = world.leader(topic)
    assert (await world.call(fetch(world, topic, 0, member), at=at)).error_code == ErrorCode.NONE
    return await world.call(fetch(world, topic, 7, member), at=at)


@case(ErrorCode.SHARE_SESSION_LIMIT_REACHED, kafka_version="4.2", group_share_max_share_sessions="1", alone=True)
async def share_sessions_above_the_limit(world: World) -> Any:
    """ShareFetch that opens a share session where there are as many as may be."""
    topic = await world.topic()
    at = world.leader(topic)
    await world.call(fetch(world, topic, 0, "first"), at=at)
    return await world.call(fetch(world, topic, 0, "second"), at=at)


@case(ErrorCode.INVALID_RECORD_STATE, kafka_version="4.2")
async def acknowledge_records_that_no_member_holds(world: World) -> Any:
    """ShareAcknowledge of records that no member holds."""
    topic, group, member = await world.topic(), world.fresh(), world.fresh()
    at = world.leader(topic)
    key = name_of(key_of(world, topic, group))
    await initialize(world, key, topic, group, 1)
    services = world.cluster.nodes[at].services
    await world.call(fetch(world, topic, 0, member, group), at=at)
    partition = services.replicas.leader_of(topic, 0)
    shared = services.shares.partitions.get_loaded(key_of(world, topic, group))
    assert shared is not None and partition is shared.partition
    shared.shared.acquire("somebody else", [(0, 3)], max_records=4, batch_size=4, strict=False, locked_until_ms=2**40)
    batch = acknowledging.AcknowledgementBatch(first_offset=0, last_offset=1, acknowledge_types=[1])
    row = acknowledging.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    request = acknowledging.ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=1,
        topics=[acknowledging.AcknowledgeTopic(topic_id=world.topic_id(topic), partitions=[row])],
    )
    return await world.call(request, at=at)
