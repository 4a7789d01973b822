"""StreamsGroupHeartbeat: join a group of Kafka Streams, stay in it, or leave it (KIP-1071).

Version 0. A node whose profile or settings exclude streams groups answers UNSUPPORTED_VERSION. A heartbeat that finds
internal topics of the application missing creates them with the rights of its sender. The response's status names
topics that could not be created, with the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.administration import topic_creation
from anabranch.broker.coordinators.consumer_groups.heartbeat import Sender
from anabranch.broker.coordinators.streams_groups.configured_topology import (
    MISSING_INTERNAL_TOPICS,
    required_topics,
    summary,
)
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, STANDBY, WARMUP, Role, Tasks, in_role
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import INTERNAL_TOPICS, RequestContext, handles
from anabranch.controller.zk.session import ZkError
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig
from anabranch.protocol.apis.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicInfo,
    Topology,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_name import is_legal

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.streams_group_requests import HeartbeatOutcome

BROKERS_DEFAULT: Final = -1


@handles(StreamsGroupHeartbeatRequest, versions="0")
async def streams_group_heartbeat(
    ctx: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Process the heartbeat of a member."""
    services = ctx.services
    try:
        if not services.has_streams_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
        if request.topology is not None:
            check_topics(ctx, request.topology)
        sender = Sender(client_id=ctx.client_id, client_host=f"/{ctx.peer.host}")
        outcome = await services.groups.streamers.heartbeat(request, sender)
    except KafkaError as refused:
        return StreamsGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message or None, status=[])
    response = response_of(outcome)
    if outcome.missing:
        failed = await make_topics(ctx, outcome)
        for status in response.status or ():
            if status.status_code == MISSING_INTERNAL_TOPICS:
                status.status_detail += failed
    return response


def check_topics(ctx: RequestContext, topology: Topology) -> None:
    """Raise KafkaError for topics that an application cannot have, or that the client may not describe."""
    sinks = {name for one in topology.subtopologies for name in one.repartition_sink_topics}
    names = sorted(required_topics(topology.subtopologies) | sinks)
    if barred := [name for name in names if name in INTERNAL_TOPICS or not is_legal(name)]:
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"invalid names of internal topics: {summary(barred)}")
    for name in names:
        authorize(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name)


def response_of(outcome: HeartbeatOutcome) -> StreamsGroupHeartbeatResponse:
    """Return the response to an accepted heartbeat."""
    answer = outcome.answer
    active, standby, warmup = (rows(answer.assigned, role) for role in (ACTIVE, STANDBY, WARMUP))
    return StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        status=[Status(status_code=code, status_detail=detail) for code, detail in answer.status],
        active_tasks=active,
        standby_tasks=standby,
        warmup_tasks=warmup,
        endpoint_information_epoch=answer.endpoint_epoch,
        partitions_by_user_endpoint=None if outcome.endpoints is None else list(outcome.endpoints),
    )


def rows(tasks: Tasks | None, role: Role) -> list[TaskIds] | None:
    """Return the tasks of one role; None if they have not changed for the member."""
    if tasks is None:
        return None
    return [TaskIds(subtopology_id=name, partitions=indexes) for name, indexes in in_role(tasks, role)]


async def make_topics(ctx: RequestContext, outcome: HeartbeatOutcome) -> str:
    """Create the missing topics. Returns a message about those that could not be created."""
    if not is_authorized(ctx, Operation.CREATE, ResourceType.CLUSTER):
        names = [info.name for info, _ in outcome.missing]
        if refused := [name for name in names if not is_authorized(ctx, Operation.CREATE, ResourceType.TOPIC, name)]:
            return f"; the member may not create {summary(refused)}"
    errors = []
    for info, count in outcome.missing:
        try:
            await make_topic(ctx, info, count)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another member created it
                errors.append(f"{info.name} ({error.message or error.code.name})")
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                break
        except ZkError as error:
            errors.append(f"{info.name} (no answer from ZooKeeper: {error})")
    return f"; they cannot be created: {summary(errors)}" if errors else ""


async def make_topic(ctx: RequestContext, info: TopicInfo, count: int) -> None:
    """Create one topic with the application's settings. Raises KafkaError, ZkError."""
    services = ctx.services
    topic = CreatableTopic(
        name=info.name,
        num_partitions=count,
        replication_factor=info.replication_factor if info.replication_factor > 0 else BROKERS_DEFAULT,
        assignments=[],
        configs=[CreatableTopicConfig(name=one.key, value=one.value) for one in info.topic_configs],
    )
    plan = topic_creation.plan_topic(services.settings, services.metadata.image, topic, services.rng)
    await topic_creation.create_automatically(services, plan)
