"""Handles ControlledShutdown in the controller: a broker's leaderships move away before it stops.

The response lists what was committed: the partitions that the broker still leads although they have other replicas. The
broker repeats the request while some remain, so the controller only remembers that it is shutting down.
"""

from __future__ import annotations

from anabranch.controller import effects, partitions
from anabranch.controller.effects import Effect
from anabranch.controller.events import ShutdownRequested
from anabranch.controller.follow_ups import Shutdown
from anabranch.controller.state import ClusterState
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownResponse, RemainingPartition
from anabranch.protocol.errors import ErrorCode


def ask(state: ClusterState, event: ShutdownRequested) -> list[Effect]:
    """Move the leaderships of a broker that shuts down. It repeats the request while some remain."""
    broker_id, epoch = event.request.broker_id, event.request.broker_epoch
    broker = state.brokers.get(broker_id)
    error = ErrorCode.NONE
    if broker is None:
        error = ErrorCode.BROKER_NOT_AVAILABLE
    elif epoch != -1 and epoch < broker.epoch:
        error = ErrorCode.STALE_BROKER_EPOCH
    if error is not ErrorCode.NONE:
        refused = ControlledShutdownResponse(error_code=error, remaining_partitions=[])
        return [effects.SendReply(event.token, refused)]
    first = broker_id not in state.shutting_down
    state.shutting_down.add(broker_id)
    announced = [effects.PublishEvent("broker stopping", {"broker": broker_id})] if first else []
    return [*announced, *partitions.shut_down(state, broker_id, event.token)]


def reply(state: ClusterState, then: Shutdown) -> Effect:
    """Build the response: the partitions that the broker still leads although they have other replicas."""
    remaining = [
        RemainingPartition(topic_name=partition.topic, partition_index=partition.partition)
        for partition in state.hosted_by([then.broker_id])
        if len(state.assignment(partition)) > 1
        and partition in state.partitions
        and state.partitions[partition].state.leader == then.broker_id
    ]
    return effects.SendReply(
        then.token, ControlledShutdownResponse(error_code=ErrorCode.NONE, remaining_partitions=remaining)
    )
