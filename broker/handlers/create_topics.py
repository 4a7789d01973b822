"""CreateTopics: create topics in ZooKeeper, and answer when this broker's metadata have their leaders.

Versions 0 to 7; counts of -1 mean the broker's defaults, v5 returns counts and configs, v7 the topic id. Only the
controller answers, or any broker while the controller is a node that clients cannot see. A topic whose leaders are not
in the metadata in time is REQUEST_TIMED_OUT, but exists.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anabranch.broker.administration import topic_creation
from anabranch.broker.administration.config_entries import topic_entries
from anabranch.broker.administration.mutation_charge import MutationCharge
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.controller.topic_admin import refuse_deleted
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from anabranch.broker.administration.topic_creation import TopicPlan
    from anabranch.broker.dispatch.services import Services

FIRST_VERSION_WITH_STRICT_QUOTA = 6


@handles(CreateTopicsRequest, versions="0-7")
async def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each topic separately, then wait for all of them."""
    services = ctx.services
    times = Counter(topic.name for topic in request.topics)
    spending = MutationCharge(ctx, strict=ctx.version >= FIRST_VERSION_WITH_STRICT_QUOTA)
    rows: list[CreatableTopicResult] = []
    created: dict[str, int] = {}
    turns = YieldBudget()
    quorum = services.profile.answers_like_a_quorum
    for topic in {one.name: one for one in request.topics}.values() if quorum else request.topics:
        await turns.spend()
        try:
            await topic_creation.refuse_unless_controller(services)
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
            check_right(ctx, topic.name)
            rows.append(await create_one(ctx, topic, spending, validate_only=request.validate_only))
            if not request.validate_only:
                created[topic.name] = max(rows[-1].num_partitions, 1)
        except KafkaError as error:
            rows.append(error_result(topic.name, error))
    late = (
        set(created) if request.timeout_ms <= 0 else await topics_without_leaders(services, created, request.timeout_ms)
    )
    topics = [timeout_row(row, with_id=not quorum) if row.name in late else row for row in rows]
    return CreateTopicsResponse(topics=topics, throttle_time_ms=spending.wait_ms)


async def topics_without_leaders(services: Services, created: dict[str, int], timeout_ms: int) -> set[str]:
    """Return the created topics that have no leaders at the deadline."""
    if not created or await topic_creation.wait_until_created(services, created, timeout_ms):
        return set()
    image = services.metadata.image
    return {name for name, count in created.items() if not topic_creation.has_leaders(image, name, count)}


def check_right(ctx: RequestContext, name: str) -> None:
    """Raise KafkaError unless the client may create this topic."""
    if is_authorized(ctx, Operation.CREATE, ResourceType.CLUSTER) or is_authorized(
        ctx, Operation.CREATE, ResourceType.TOPIC, name
    ):
        return
    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


async def create_one(
    ctx: RequestContext, topic: CreatableTopic, spending: MutationCharge, *, validate_only: bool
) -> CreatableTopicResult:
    """Check one topic and, unless `validate_only`, create it."""
    services = ctx.services
    plan = topic_creation.plan_topic(services.settings, services.metadata.image, topic, services.rng)
    if validate_only:
        await refuse_deleted(services.session, plan.name)
    else:
        spending.spend(len(plan.assignment))
        await topic_creation.create(services, plan)
    # With validate_only a quorum returns an id that no topic gets.
    topic_id = ZERO_UUID if validate_only and not services.profile.answers_like_a_quorum else plan.topic_id
    if not is_authorized(ctx, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, plan.name):
        return CreatableTopicResult(
            name=plan.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=None,
        )
    return CreatableTopicResult(
        name=plan.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(plan.assignment),
        replication_factor=plan.replication_factor,
        configs=effective_configs(services, plan),
    )


def effective_configs(services: Services, plan: TopicPlan) -> list[CreatableTopicConfigs]:
    """Return every property of the new topic, with the source of its value."""
    return [
        CreatableTopicConfigs(
            name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
        )
        for entry in topic_entries(services.dynamic, plan.configs)
    ]


def error_result(name: str, error: KafkaError) -> CreatableTopicResult:
    """Return the row of a topic that was not created."""
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message or None, configs=[])


def timeout_row(row: CreatableTopicResult, *, with_id: bool) -> CreatableTopicResult:
    """Return the row of a created topic without leaders."""
    late = error_result(row.name, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    late.topic_id = row.topic_id if with_id else ZERO_UUID
    return late
