"""Refusals between brokers and controllers."""

from __future__ import annotations

import dataclasses
from typing import Any

from anabranch.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from anabranch.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.protocol.errors import ErrorCode
from tests.contracts.error_codes import World, case


def broker_epoch(world: World, node_id: int) -> int:
    return world.cluster.nodes[node_id].services.fence.broker_epoch


def proposing(
    world: World, topic: str, isr: dict[int, int], *, leader_epoch: int = 0, partition_epoch: int = 0
) -> AlterPartitionRequest:
    """The ISR (broker -> broker epoch) that a leader wants."""
    leader = world.leader(topic)
    row = PartitionData(
        partition_index=0,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=one, broker_epoch=epoch) for one, epoch in isr.items()],
        partition_epoch=partition_epoch,
    )
    rows = [TopicData(topic_id=world.topic_id(topic), partitions=[row])]
    return AlterPartitionRequest(broker_id=leader, broker_epoch=broker_epoch(world, leader), topics=rows)


def ordering(
    world: World, topic: str, at: int, *, controller_epoch: int | None = None, topic_id: bytes | None = None
) -> LeaderAndIsrRequest:
    """A controller's request for a topic's only partition."""
    controller = world.cluster.nodes[world.controller].controller
    assert controller is not None
    epoch = controller.epoch if controller_epoch is None else controller_epoch
    row = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=epoch,
        leader=at,
        leader_epoch=9,
        isr=[at],
        partition_epoch=9,
        replicas=[at],
    )
    state = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id or world.topic_id(topic), partition_states=[row])
    return LeaderAndIsrRequest(
        controller_id=world.controller,
        controller_epoch=epoch,
        broker_epoch=broker_epoch(world, at),
        topic_states=[state],
        live_leaders=[],
    )


@case(ErrorCode.STALE_BROKER_EPOCH)
async def alter_partition_with_a_stale_broker_epoch(world: World) -> Any:
    """AlterPartition with a broker epoch that is not the registration's."""
    topic = await world.topic(replicas=2)
    request = proposing(world, topic, {1: -1})
    return await world.call(dataclasses.replace(request, broker_epoch=request.broker_epoch - 1))


@case(ErrorCode.INELIGIBLE_REPLICA)
async def alter_partition_with_a_stale_member(world: World) -> Any:
    """AlterPartition v3 with a member of the ISR under an epoch that is over (KIP-903)."""
    topic = await world.topic(replicas=2)
    leader, follower = world.leader(topic), world.not_leader(topic)
    epochs = {leader: broker_epoch(world, leader), follower: broker_epoch(world, follower)}
    shrunk = await world.call(proposing(world, topic, {leader: epochs[leader]}))
    assert shrunk.topics[0].partitions[0].error_code == ErrorCode.NONE
    row = shrunk.topics[0].partitions[0]
    stale = epochs | {follower: epochs[follower] - 1}
    return await world.call(proposing(world, topic, stale, partition_epoch=row.partition_epoch))


@case(ErrorCode.INVALID_UPDATE_VERSION)
async def alter_partition_with_an_old_partition_epoch(world: World) -> Any:
    """AlterPartition with a partition epoch that another change has ended."""
    topic = await world.topic(replicas=2)
    leader = world.leader(topic)
    mine = {leader: broker_epoch(world, leader)}
    shrunk = await world.call(proposing(world, topic, mine))
    assert shrunk.topics[0].partitions[0].error_code == ErrorCode.NONE
    return await world.call(proposing(world, topic, mine | {world.not_leader(topic): -1}))


@case(ErrorCode.BROKER_NOT_AVAILABLE)
async def controlled_shutdown_of_an_unknown_broker(world: World) -> Any:
    """ControlledShutdown of a broker that is not registered."""
    return await world.call(ControlledShutdownRequest(broker_id=77))


@case(ErrorCode.BROKER_ID_NOT_REGISTERED)
async def allocate_producer_ids_for_an_unknown_broker(world: World) -> Any:
    """AllocateProducerIds for a broker that is not registered."""
    return await world.call(AllocateProducerIdsRequest(broker_id=77))


@case(ErrorCode.STALE_CONTROLLER_EPOCH)
async def leader_and_isr_of_a_stale_controller(world: World) -> Any:
    """LeaderAndIsr with a controller epoch below one that the broker has seen."""
    topic = await world.topic()
    at = world.leader(topic)
    return await world.call(ordering(world, topic, at, controller_epoch=0), at=at)


@case(ErrorCode.INCONSISTENT_TOPIC_ID)
async def leader_and_isr_with_another_topic_id(world: World) -> Any:
    """LeaderAndIsr of a partition whose log belongs to an earlier topic of the same name."""
    topic = await world.topic()
    at = world.leader(topic)
    return await world.call(ordering(world, topic, at, topic_id=b"\x07" * 16), at=at)


@case(ErrorCode.FEATURE_UPDATE_FAILED, alone=True)
async def update_features_during_another_update(world: World) -> Any:
    """UpdateFeatures of a controller that has not read another writer's latest change."""
    controller = world.cluster.nodes[world.controller].controller
    assert controller is not None and controller._runner is not None
    state = controller._runner.state
    state.features = dataclasses.replace(state.features, epoch=state.features.epoch - 1)
    update = FeatureUpdateKey(feature="reshard.version", max_version_level=0, upgrade_type=2)
    return await world.call(UpdateFeaturesRequest(feature_updates=[update]))
