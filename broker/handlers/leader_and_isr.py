"""LeaderAndIsr: receive from the controller which partitions this broker leads and follows.

Each row is applied as a whole, so that leader epoch, generation and seal of a partition change together (R2), or
refused as old. Between the rows of a long request other tasks run, but no other controller request. Versions 0 to 7;
rows have the generation from v4 on, as tagged fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.controller.zk.session import ZkError
from anabranch.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_name import is_legal
from anabranch.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from anabranch.broker.dispatch.services import Services

Row = tuple[str, bytes, bool, LeaderAndIsrPartitionState]
"""(topic, topic id, whether it has batches with generations, state)."""


@handles(LeaderAndIsrRequest, versions="0-7")
async def leader_and_isr(ctx: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """Process the request after all earlier controller requests."""
    authorize_broker(ctx)
    async with ctx.services.fence.turn:
        return await carry_out(ctx, request)


async def carry_out(ctx: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """Load the topics' configurations, then change roles, a few at a time."""
    services = ctx.services
    rows = list(rows_of(request))
    await load_configurations(services, rows)
    await services.fence.wait_registered()
    try:
        services.fence.admit(controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch)
    except KafkaError as error:
        return error_response(ctx, request, error)
    services.replicas.fetchers.learn_addresses((one.broker_id, one.host_name, one.port) for one in request.live_leaders)
    flat: list[LeaderAndIsrPartitionError] = []
    by_id: dict[bytes, list[LeaderAndIsrPartitionError]] = {}
    try:
        async for topic, topic_id, has_generations, state in services.fence.in_steps(request, rows):
            code = services.replicas.apply_state(topic, topic_id, state, has_generations=has_generations)
            row = LeaderAndIsrPartitionError(topic_name=topic, partition_index=state.partition_index, error_code=code)
            flat.append(row)
            by_id.setdefault(topic_id, []).append(row)
    except KafkaError as error:
        return error_response(ctx, request, error)
    finally:
        services.replicas.fetchers.settle()
    return LeaderAndIsrResponse(
        error_code=ErrorCode.NONE,
        partition_errors=flat,
        topics=[
            LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors) for topic_id, errors in by_id.items()
        ],
    )


async def load_configurations(services: Services, rows: Iterable[Row]) -> None:
    """Read the configurations of topics that come to this broker, and those that could not be read before.

    A new topic's configuration is not announced, and the ZooKeeper server of this session may lag behind that of the
    controller. A configuration that is known although the topic is not here may be that of an earlier topic of its
    name.
    """
    topics = sorted({(topic, topic_id) for topic, topic_id, _, _ in rows if is_legal(topic)})
    coming = {topic for topic, topic_id in topics if not services.replicas.has_topic(topic, topic_id)}
    try:
        if coming:
            await services.topic_configs.sync()
    except ZkError as error:
        services.log.warning("configurations of new topics may be old: ZooKeeper does not sync: %s", error)
    for topic, _ in topics:
        try:
            await services.topic_configs.load(topic, again=topic in coming)
        except ZkError as error:
            # Roles matter more than the topic's settings: continue with the defaults.
            services.log.warning("cannot read the configuration of %s: %s", topic, error)


def error_response(ctx: RequestContext, request: LeaderAndIsrRequest, error: KafkaError) -> LeaderAndIsrResponse:
    """Return the response to a replaced controller, or to a request for an earlier registration of this broker."""
    ctx.services.log.info("refusing LeaderAndIsr of controller %d: %s", request.controller_id, error)
    return LeaderAndIsrResponse(error_code=error.code)


def rows_of(request: LeaderAndIsrRequest) -> Iterator[Row]:
    """Yield the rows of all partitions, in any version."""
    for state in request.ungrouped_partition_states:
        yield state.topic_name, ZERO_UUID, False, state
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, topic.has_generations, state
