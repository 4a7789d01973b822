"""Metadata: brokers, topics and leaders, and for generation-aware clients the resizes of each topic (KIP-253).

Versions 0 to 13. The resize fields are tags from v9 on, for clients that request them (D3, D27). A response is made
from one immutable image, so R12 holds because it holds for every image (see `broker.metadata.metadata_cache`). A
missing topic is created if the broker and the request allow it, within the client's quota of mutations. The response
waits up to `SETTLE_MS` for its leaders. It contains LEADER_NOT_AVAILABLE if they take longer, or if it is unknown
whether the topic exists. A request creates topics for `CREATE_MS`; the remaining ones get the same error, and the
client retries. Source: Kafka's `AutoTopicCreationManager`, which answers before it creates anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from anabranch.broker.administration import topic_creation
from anabranch.broker.administration.mutation_charge import MutationCharge
from anabranch.broker.dispatch.auth_helper import (
    OPERATIONS_NOT_REQUESTED,
    authorized_cluster_operations,
    authorized_operations,
    is_authorized,
)
from anabranch.broker.dispatch.request_context import INTERNAL_TOPICS, CloseConnection, RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID, constructor_of

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, TopicImage

Requested = TypeVar("Requested")

SETTLE_MS: Final = 250
BROKERS_WAIT_MS: Final = 3000
"""Less than the request timeouts of clients, which look for another broker when the connection ends."""
CREATE_MS: Final = 500
"""How long one request may create topics: each takes some milliseconds, and a request may name 100,000."""
_MAY_EXIST: Final = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""The topic may exist: another broker created it, or ZooKeeper did not answer the write."""
FIRST_VERSION_WITH_NULL_FOR_ALL: Final = 1
FIRST_VERSION_WITH_LOOKUP_BY_ID: Final = 12
new_response: Final = constructor_of(MetadataResponse)


@handles(MetadataRequest, versions="0-13")
async def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Create missing topics if allowed, then answer from the current image."""
    services = ctx.services
    if not services.metadata.image.brokers:
        await wait_for_brokers(ctx)
    requested, aware = request.topics, request.generation_aware
    throttle_time_ms = 0
    if requested and ctx.version < FIRST_VERSION_WITH_LOOKUP_BY_ID and any(by_id(one) for one in requested):
        return error_response(requested)
    if requested is None or (not requested and ctx.version < FIRST_VERSION_WITH_NULL_FOR_ALL):
        image = services.metadata.image
        shown = [
            one for one in image.topics.values() if is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, one.name)
        ]
        topics = await rows_of(shown, lambda topic: row_of(ctx, image, topic, aware))
    else:
        missing: dict[str, ErrorCode] = {}
        existing = services.metadata.image.topics
        if request.allow_auto_topic_creation and any(topic.name not in existing for topic in requested):
            spending = MutationCharge(ctx, strict=False)
            missing = await create_missing(ctx, request, spending)
            throttle_time_ms = spending.wait_ms
        image = services.metadata.image
        rows = await rows_of(requested, lambda topic: answer(ctx, image, topic, missing, aware))
        topics = list({(row.topic_id, row.name): row for row in rows}.values())  # a repeated topic gets one row
    if request.include_topic_authorized_operations:
        topics = [with_operations(ctx, row) for row in topics]
    else:
        topics = services.metadata_rows.encoded(topics, ctx.peer.listener, ctx.version, generation_aware=aware)
    return new_response(
        throttle_time_ms=throttle_time_ms,
        brokers=services.metadata_rows.broker_rows(image, ctx.peer.listener),
        cluster_id=services.cluster_id,
        controller_id=topic_creation.controller_to_show(services),
        topics=topics,
        cluster_authorized_operations=(
            authorized_cluster_operations(ctx)
            if request.include_cluster_authorized_operations
            else OPERATIONS_NOT_REQUESTED
        ),
        max_partition_epoch=max(
            (partition.partition_epoch for topic in topics for partition in topic.partitions), default=-1
        )
        if aware
        else -1,
    )


async def wait_for_brokers(ctx: RequestContext) -> None:
    """Wait until the controller has sent the live brokers. Raises CloseConnection if that takes too long.

    A broker accepts connections before it is registered, and an earlier session or a missing controller delay that by
    seconds. Kafka 3 then responds without brokers. librdkafka 2.16 drops every broker that a response does not
    have, and may never connect again. Kafka 4 does not process requests before it has the metadata.
    """
    if not await ctx.services.metadata.wait_until(lambda image: bool(image.brokers), BROKERS_WAIT_MS):
        raise CloseConnection("the controller has not sent any metadata yet")


async def rows_of(
    topics: Iterable[Requested], answer: Callable[[Requested], MetadataResponseTopic]
) -> list[MetadataResponseTopic]:
    """Return the rows of topics, built in steps of a number of partitions."""
    rows, turns = [], YieldBudget()
    for topic in topics:
        rows.append(answer(topic))
        if turns.is_spent(1 + len(rows[-1].partitions)):
            await asyncio.sleep(0)
    return rows


def by_id(requested: MetadataRequestTopic) -> bool:
    """Return whether a topic is requested by id; not every version whose fields include ids supports that."""
    return requested.topic_id != ZERO_UUID or requested.name is None


def error_response(requested: list[MetadataRequestTopic]) -> MetadataResponse:
    """Return the response to an invalid request: every topic has the error, and all else is empty."""
    rows = [MetadataRequestTopic(name=topic.name or "", topic_id=topic.topic_id) for topic in requested]
    return MetadataResponse(
        brokers=[], cluster_id=None, topics=[error_row(row, ErrorCode.INVALID_REQUEST) for row in rows]
    )


async def create_missing(
    ctx: RequestContext, request: MetadataRequest, spending: MutationCharge
) -> dict[str, ErrorCode]:
    """Create the named topics that do not exist. Returns name -> error of those that are not available yet."""
    loop, turns = asyncio.get_running_loop(), YieldBudget()
    deadline_s = loop.time() + CREATE_MS / 1000
    tried = False
    services = ctx.services
    outcome: dict[str, ErrorCode] = {}
    if not services.settings.auto_create_topics_enable:
        return outcome
    created: dict[str, int] = {}
    for requested in request.topics or ():
        await turns.spend()
        image = services.metadata.image
        if (
            not requested.name
            or requested.topic_id != ZERO_UUID
            or requested.name in image.topics
            or requested.name in outcome
        ):
            continue
        if not is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, requested.name):
            continue
        if not is_authorized(ctx, Operation.CREATE, ResourceType.CLUSTER) and not is_authorized(
            ctx, Operation.CREATE, ResourceType.TOPIC, requested.name
        ):
            outcome[requested.name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        if tried and loop.time() > deadline_s:
            outcome[requested.name] = ErrorCode.LEADER_NOT_AVAILABLE
            continue
        tried = True
        try:
            plan = topic_creation.plan_auto_creation(services.settings, image, requested.name, services.rng)
            spending.spend(len(plan.assignment))
            await topic_creation.create_automatically(services, plan)
            created[plan.name] = len(plan.assignment)
            outcome[requested.name] = ErrorCode.LEADER_NOT_AVAILABLE
        except KafkaError as error:
            outcome[requested.name] = ErrorCode.LEADER_NOT_AVAILABLE if error.code in _MAY_EXIST else error.code
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                services.log.info("cannot create topic %r automatically: %s", requested.name, error)
    if created:
        await topic_creation.wait_until_created(services, created, SETTLE_MS)
    return outcome


def answer(
    ctx: RequestContext,
    image: ClusterImage,
    requested: MetadataRequestTopic,
    refused: dict[str, ErrorCode],
    aware: bool,
) -> MetadataResponseTopic:
    """Return the row of a topic that was requested by name or by id."""
    if requested.topic_id != ZERO_UUID:
        topic = image.topics.get(image.names.get(requested.topic_id, ""))
        if topic is None:
            return error_row(requested, ErrorCode.UNKNOWN_TOPIC_ID)
        if not is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            return hidden_row(None, requested.topic_id)
        return row_of(ctx, image, topic, aware)
    if requested.name is None:
        return error_row(requested, ErrorCode.INVALID_REQUEST)
    if not is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, requested.name):
        return hidden_row(requested.name, ZERO_UUID)
    topic = image.topics.get(requested.name)
    if topic is not None:
        return row_of(ctx, image, topic, aware)
    try:
        topic_creation.check_topic_name(requested.name)
    except KafkaError as error:
        return error_row(requested, error.code)
    return error_row(requested, refused.get(requested.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def row_of(ctx: RequestContext, image: ClusterImage, topic: TopicImage, aware: bool) -> MetadataResponseTopic:
    """Return the row of an existing topic, from a cache that all clients share."""
    return ctx.services.metadata_rows.row(image, topic, ctx.peer.listener, ctx.version, generation_aware=aware)


def with_operations(ctx: RequestContext, row: MetadataResponseTopic) -> MetadataResponseTopic:
    """Return a copy of a row with this client's authorized operations."""
    if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED or row.name is None:
        return row
    return replace(row, topic_authorized_operations=authorized_operations(ctx, ResourceType.TOPIC, row.name))


def hidden_row(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    """Return the row of a topic that the client may not describe, whether the topic exists or not."""
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id, is_internal=False, partitions=[]
    )


def error_row(requested: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    """Return the row of a refused topic."""
    return MetadataResponseTopic(
        error_code=code,
        name=requested.name,
        topic_id=requested.topic_id,
        is_internal=requested.name in INTERNAL_TOPICS,
        partitions=[],
    )
